"""Compares a state with the rows that the server has at one position."""
