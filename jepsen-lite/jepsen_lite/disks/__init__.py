"""Disks that fill up, dawdle, lose what was never synced, and rot."""
