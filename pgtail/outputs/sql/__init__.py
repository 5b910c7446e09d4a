"""Transactions as SQL scripts, forward and undo."""
