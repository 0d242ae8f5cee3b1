"""A research agent that plans, searches a corpus and writes a report, and whose workers are killed meanwhile."""
