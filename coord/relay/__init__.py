"""The relay: many agents behind one connection. See README.md."""
