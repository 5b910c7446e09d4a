"""`pgtail capture`."""
