"""Segments to the changes, transactions and relations in them."""
