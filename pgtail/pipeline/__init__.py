"""Slices or decoded messages, assembler, filter, output: in order, in bounded memory."""
