"""Describes a segment, and the places in the stream that it has."""
