"""Changes of segments as Arrow columns, with PostgreSQL's text or typed, and the fold of changes to rows."""
