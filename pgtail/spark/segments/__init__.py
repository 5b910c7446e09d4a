"""Lists segments, and plans which part of each to read."""
