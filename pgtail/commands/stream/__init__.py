"""`pgtail stream` and `pgtail expect`."""
