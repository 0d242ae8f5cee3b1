"""A maintainer that works through a list of small fixes in a git repository, for hours, and commits each once."""
