"""Hosts that are set aside, emptied or silent, and how they come back."""
