"""The Delta tables of a folder: what is written, committed and read."""
