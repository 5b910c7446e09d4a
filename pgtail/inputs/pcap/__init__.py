"""Packet captures: packets, TCP streams, connections to PostgreSQL."""
