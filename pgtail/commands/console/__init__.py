"""A command's display on a terminal beside its output: messages, progress, pager, colours."""
