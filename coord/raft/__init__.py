"""The replicated log: one port (`ports.py`), three implementations under one contract suite."""
