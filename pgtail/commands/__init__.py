"""What each command does. Knows no click: options arrive as the records of `options`."""
