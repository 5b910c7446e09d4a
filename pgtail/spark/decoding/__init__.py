"""DataFrames of changes, transactions and relations."""
