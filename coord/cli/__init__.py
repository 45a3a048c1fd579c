"""coordctl: everything a person does with coord, from one command."""
