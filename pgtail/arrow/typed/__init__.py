"""PostgreSQL's text to typed Arrow columns."""
