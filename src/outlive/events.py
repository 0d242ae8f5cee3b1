"""What `Handle.events` gives, for annotations; and `stream`, by which a step or a tool lets its text be seen early."""

from outlive.app.following import Attempt, Event
from outlive.engine.streaming import stream

__all__ = ["Attempt", "Event", "stream"]
