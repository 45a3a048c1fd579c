"""Guards of the product that can be taken out by name, and what notices that they are gone."""
