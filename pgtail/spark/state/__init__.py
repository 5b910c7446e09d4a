"""The current rows of each table, and their history."""
