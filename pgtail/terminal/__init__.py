"""Text for terminals: escaping, colours, layout and how values are shown."""
