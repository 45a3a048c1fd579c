"""A model of large fleets over weeks: the real core, and hosts that fail as hosts do."""
