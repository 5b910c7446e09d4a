"""A command that runs for years: health, metrics, and systemd's notifications."""
