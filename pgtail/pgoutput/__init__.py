"""The pgoutput protocol: bytes to messages. Sans-IO: this package uses no file, socket or clock."""
