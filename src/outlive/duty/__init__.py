"""Work that belongs to no run: each duty is done by one worker at a time, under a lease of its own."""
