"""Generated from `proto/` by `make proto`. Only `coord/codec.py` imports it."""
