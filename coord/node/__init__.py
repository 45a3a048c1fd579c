"""The shell around the core: one server's clock, proposals, sessions and housekeeping."""
