"""Floor 5, everything that opens a socket or runs a server; nothing below it knows that a network exists."""
