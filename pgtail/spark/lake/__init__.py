"""Writes, commits and reads the Delta tables of a folder."""
