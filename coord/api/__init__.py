"""HTTP+JSON for people and tools, WebSocket+protobuf for agents and clients."""
