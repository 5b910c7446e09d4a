"""Folders of Parquet files: what is in them, writing them, and their typed tables."""
