"""`pgtail spark`."""
