"""Decodes a segment to changes."""
