"""Where the changes of a command go: standard output, a file, or a directory; and the output that writes them."""
