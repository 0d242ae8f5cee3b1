"""The log of a run: what an entry is, how it is written, chained and read back, and what a log says (fold)."""
