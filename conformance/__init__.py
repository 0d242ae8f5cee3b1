"""A kit that kills the processes of durable engines and counts what was done to the world; it knows no engine."""
