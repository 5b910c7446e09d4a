"""What each command does. Knows no click: options arrive as the dataclasses of `options`."""
