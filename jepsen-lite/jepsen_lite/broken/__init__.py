"""Builds that are broken on purpose, to see that the suite notices."""
