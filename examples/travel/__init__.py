"""Trips are booked with three providers, and undone where they come to nothing, whoever dies meanwhile."""
