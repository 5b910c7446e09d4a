"""Which segments there are, and which part of each to read."""
