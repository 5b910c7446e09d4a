"""`pgtail stats`: count events in bounded memory, and report the counts."""
