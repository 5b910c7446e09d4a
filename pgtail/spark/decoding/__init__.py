"""Decodes segments to changes, transactions and relations."""
