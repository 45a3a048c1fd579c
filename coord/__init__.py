"""coord keeps a fleet that trains models running: an event-sourced coordination service on Raft."""

__version__ = "0.1.0"
