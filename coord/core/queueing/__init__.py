"""Who may have how much, whose turn it is, and what starts."""
