"""A state compared with the rows that the server has at one position."""
