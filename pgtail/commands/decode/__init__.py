"""`pgtail decode`."""
