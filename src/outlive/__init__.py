"""Outlive: the process layer for long-running agents. The worker may stop; the task still has an owner."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlive.app.client import Handle
    from outlive.app.outlive import Outlive
    from outlive.engine.definition import Agent, Tool
    from outlive.engine.operation import Operation
    from outlive.engine.run import Run
    from outlive.log.codec import NotDigested
    from outlive.model.operation import DidNotHappen, Happened, Retry, Unclear
    from outlive.model.signals import NotSent

__all__ = [
    "Agent",
    "DidNotHappen",
    "Handle",
    "Happened",
    "NotDigested",
    "NotSent",
    "Operation",
    "Outlive",
    "Retry",
    "Run",
    "Tool",
    "Unclear",
]

# Where each name lives: imported at first use, so that the command line answers at once.
_HOMES = {
    "outlive.app.client": ("Handle",),
    "outlive.app.outlive": ("Outlive",),
    "outlive.engine.definition": ("Agent", "Tool"),
    "outlive.engine.operation": ("Operation",),
    "outlive.engine.run": ("Run",),
    "outlive.log.codec": ("NotDigested",),
    "outlive.model.operation": ("DidNotHappen", "Happened", "Retry", "Unclear"),
    "outlive.model.signals": ("NotSent",),
}

if not TYPE_CHECKING:  # a type checker must still refuse a name that is not there

    def __getattr__(name: str) -> object:
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                found: object = getattr(import_module(home), name)
                globals()[name] = found
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
