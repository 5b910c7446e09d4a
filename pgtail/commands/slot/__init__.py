"""`pgtail slot`."""
