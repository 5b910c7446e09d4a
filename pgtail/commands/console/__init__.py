"""What a command shows on a terminal beside its output: messages, progress, pager, colours."""
