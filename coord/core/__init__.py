"""The deterministic state machine: state and entry in; decisions or a rejection, and a new state
out."""
