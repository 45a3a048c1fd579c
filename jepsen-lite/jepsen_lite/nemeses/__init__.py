"""What goes wrong, on purpose: each nemesis draws misfortunes from its seed and ends them again."""
