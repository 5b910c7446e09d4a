"""`pgtail stats`."""
