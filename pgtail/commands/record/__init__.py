"""`pgtail record`."""
