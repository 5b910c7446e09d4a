"""Temporary files, atomic replacement, decompression, signals, and the Sink protocol."""
