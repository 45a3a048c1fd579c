"""The whole cluster in one thread: servers, hosts, agents and clients on simulated ports."""
