"""pgtail: tail, inspect and query PostgreSQL logical replication; holds the version and nothing else."""

__version__ = "0.1.0"
