"""Files and pipes, and reading ahead in them."""
