"""The simulator of coord: the real code on a simulated network, disk, clock and processes."""
