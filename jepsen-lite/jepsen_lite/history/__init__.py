"""What every client asked and was told, and what went wrong meanwhile, written as it happens."""
