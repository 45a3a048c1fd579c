"""What is kept on disk: the event store, the materialised state, incident files."""
