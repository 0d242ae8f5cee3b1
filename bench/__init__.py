"""What the engine costs, measured beside its floor: `python -m bench` prints, `make bench` writes docs/performance.md.

Floor and ours always run in the same process or process count, on the same disk and server, taking turns.
"""
