"""Lists the segments of captures, and plans which part of each to read."""
