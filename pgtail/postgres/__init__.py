"""Talking to PostgreSQL: connections, catalog queries, slots, walsender sessions. The only user of psycopg."""
