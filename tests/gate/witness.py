"""What is really executed: every body of a step or a tool that the engine runs, by the place of its call in the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from outlive.engine import run as steps
from outlive.engine import send, transact
from outlive.engine.callables import run_callable
from outlive.engine.run import running
from outlive.engine.scope import current
from outlive.log.fold import Fold

# The window of a call, and its key there.
Place = tuple[int, str]


@dataclass
class Witness:
    """Bodies in the order in which they began, by the name that their call has in the log; `after` is told of each that
    has done its work.
    """

    names: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    after: Callable[[str], None] = field(default=lambda _: None)

    async def body(self, fn: Callable[..., Any], *args: object, **kwargs: object) -> object:
        """Note it and run it; what only checks the send window before it has a body of its own inside."""
        if fn.__name__ == "on_loop":
            return await run_callable(fn, *args, **kwargs)
        attempt, scope = running.get()._attempt, current.get()
        name = scope.key.rsplit("/", 2)[-2]
        self.names.append(name)
        self.places.append((attempt.fold.window if attempt.turning else 0, scope.key))
        try:
            return await run_callable(fn, *args, **kwargs)
        finally:
            self.after(name)

    def begin(self) -> None:
        """Forget what was."""
        self.names.clear()
        self.places.clear()


def done(fold: Fold) -> set[Place]:
    """The calls that have their outcome."""
    numbered = [(0, fold.windows[0]), *([(fold.window, fold.windows[-1])] if len(fold.windows) > 1 else [])]
    return {
        (number, call.key)
        for number, window in numbered
        for scope in window.values()
        for call in scope.calls
        if call.done
    }


@contextmanager
def witnessing() -> Iterator[Witness]:
    """Every body that is executed meanwhile."""
    witness = Witness()
    seen: Callable[..., Awaitable[object]] = witness.body
    with pytest.MonkeyPatch.context() as patched:
        for module in (steps, send, transact):
            patched.setattr(module, "run_callable", seen)
        yield witness
