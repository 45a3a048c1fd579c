"""What lies between the parties, and how it fails."""
