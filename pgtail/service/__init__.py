"""What a program that runs for years knows of itself, and the protocol of systemd."""
