"""Floor 4, captures: what a server sent, unchanged, in a directory of segments; knows no socket and no row.

A segment holds PostgreSQL's own framing (protocol 3.0: type byte, int32 length, body): ParameterStatus messages that
say how it was made, CopyData messages with XLogData in them. It is a series of gzip members, one per fsync.
"""
