"""What `Handle.events` gives, for annotations."""

from outlive.app.client import Event

__all__ = ["Event"]
