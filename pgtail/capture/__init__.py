"""Captures: what a server sent, unchanged, as a directory of segments.

A segment uses PostgreSQL's own framing (protocol 3.0: type byte, int32 length, body): ParameterStatus messages for
its parameters, CopyData messages with XLogData. It is a series of gzip members, one per fsync.
"""
