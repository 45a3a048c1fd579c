"""What the pytest plugin gives to tests: clusters, misfortunes and histories, sync and async."""
