"""Dumps that are text: hex lines, psql's results, COPY text, CSV."""
