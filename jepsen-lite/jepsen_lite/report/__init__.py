"""The page of a run: verdicts, and the timeline of operations under the faults."""
