"""Messages to change events: relations, the assembler, streamed transactions, filters and redaction."""
