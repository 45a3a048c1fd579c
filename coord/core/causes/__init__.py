"""What failed first, and whose fault it was."""
