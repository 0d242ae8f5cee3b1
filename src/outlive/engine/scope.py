"""A scope as an attempt runs it: its place in the log, the task that owns it, why it waits, and how it is cancelled."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from outlive.engine.replay import Cursor
from outlive.log.fold import Call, ScopeLog
from outlive.model.run import Block


@dataclass(frozen=True, slots=True)
class Parked:
    """Why a scope waits: until a time, for a message, until a person decides (`block`), or for the attempt's end."""

    why: str
    until: int | None = None
    block: Block | None = None
    detail: str = ""
    message: bool = False
    cancellable: bool = True


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an attempt takes no new work: what happens when the calls in flight have reached their record."""

    kind: Literal["lost", "over", "drain", "pause", "diverged", "fault"]
    report: str = ""
    fault: Exception | None = None


class Scope:
    """A sequential strand of calls: what is recorded of it, the task that owns it, and what it is doing."""

    def __init__(self, name: str, recorded: ScopeLog) -> None:
        self.name = name
        self.cursor = Cursor(name, recorded)
        self.task: asyncio.Task[object] | None = None
        self.sending: asyncio.Task[Call] | None = None
        self.asked = self.line = ""
        self.joining = False
        self.executing = False
        self.shielded = False
        self.cancelled = False
        self.above: Scope | None = None
        self.branches: list[Scope] = []
        self.opening = False
        self.parked: Parked | None = None
        self.waiter: asyncio.Future[None] | None = None
        # Of the call in flight; and of the last one that was asked for.
        self.key = self.met = ""
        # Of the root scope: whether its code knows that the run is cancelled, and whether its task was told.
        self.told = self.struck = False

    @property
    def rests(self) -> bool:
        """Whether it waits, and not only until it is told, in a moment, that it is cancelled."""
        return self.parked is not None and not (self.cancelled and self.parked.cancellable)

    def cancel(self, why: str) -> None:
        """The scope and all below it are over, as is recorded: told now, or when what replay has left is consumed."""
        for branch in self.branches:
            branch.cancel(why)
        self.cursor.cancelled = self.cursor.cancelled or why
        self.consumed()

    def consumed(self) -> None:
        """A recorded call was met, here or below. Cancellation is told exactly when nothing is left before it.

        Branches are told first: what is recorded below a scope is before its end.
        """
        if self.cursor.cancelled is not None and not self.cancelled and self._exhausted():
            self.cancelled = True
            asyncio.get_running_loop().call_soon(self._tell)
        if self.above is not None:
            self.above.consumed()

    def _exhausted(self) -> bool:
        """Whether nothing recorded is left, here and below."""
        return self.cursor.exhausted and not self.opening and all(branch._exhausted() for branch in self.branches)

    def _tell(self) -> None:
        """At once, or after the record of an operation that may have been sent."""
        if self.parked is not None and self.waiter is not None and not self.waiter.done():
            if self.parked.cancellable:
                self.parked = None
                self.waiter.set_exception(asyncio.CancelledError())
        elif not self.shielded and self.task is not None:
            self.task.cancel()


current: ContextVar[Scope] = ContextVar("outlive_scope")
