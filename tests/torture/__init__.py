"""What takes hours, or hits a fault at random: `make torture`, or `python -m tests.torture`."""
