"""The listening end of /v1/channel, the same for a server and a relay."""
