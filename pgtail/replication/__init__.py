"""Following a slot: plan, session loop, threads, feedback, reconnecting."""
