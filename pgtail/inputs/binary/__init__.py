"""Binary dumps: messages in frames, separated by newlines, or without anything between them."""
