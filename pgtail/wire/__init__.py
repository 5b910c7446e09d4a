"""Floor 1, bytes -> messages: sans-IO, so no file, socket, clock or print in this folder."""
