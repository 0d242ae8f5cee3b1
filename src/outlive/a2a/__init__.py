"""Runs as the tasks of an A2A server (extra `a2a`): `RunTaskStore` is a `TaskStore` of its SDK.

The run is what counts: a task is read from it, and nothing is kept beside it.
"""

try:
    import a2a as _sdk
except ImportError as error:  # pragma: no cover - the development tools bring it
    raise ImportError("outlive.a2a needs the extra a2a: pip install 'outlive[a2a]'") from error

from outlive.a2a.tasks import RunTaskStore

__all__ = ["RunTaskStore"]

del _sdk
