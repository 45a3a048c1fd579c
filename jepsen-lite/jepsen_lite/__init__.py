"""Break a real cluster of processes, record what its clients saw, and judge it."""
