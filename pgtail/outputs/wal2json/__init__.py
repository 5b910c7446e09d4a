"""Changes as wal2json prints them, format versions 1 and 2."""
