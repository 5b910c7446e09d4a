"""The input of a command: files, filters and types from its options, and requests to stop while it reads."""
