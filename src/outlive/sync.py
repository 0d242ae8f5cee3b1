"""The verbs of `Outlive` and `Handle` for code that is not asynchronous."""

from outlive.app.sync import Client, Handle

__all__ = ["Client", "Handle"]
