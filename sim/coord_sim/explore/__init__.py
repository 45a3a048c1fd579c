"""Taking an incident apart: other orders, and what goes wrong in them."""
