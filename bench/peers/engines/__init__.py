"""One program for each engine, as its own documentation says to use it. Only `speech` is shared."""
