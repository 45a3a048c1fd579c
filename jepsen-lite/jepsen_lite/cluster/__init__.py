"""Clusters to break: our own processes, or somebody else's."""
