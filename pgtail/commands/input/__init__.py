"""What a command reads: files, filters and types from its options, and what a request to stop means while it reads."""
