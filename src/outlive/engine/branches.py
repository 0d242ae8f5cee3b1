"""Named scopes: gather, map and first. Each branch is a scope of its own with a stable key, owned by its own task.

When a branch fails (or wins), what user code is told is an entry of the scope that waits, in one commit with the
cancellation of all that had not ended, branches of branches too. An operation that may have been sent reaches its
record first. On replay a branch that was cancelled decides nothing: its own cancellation, or its parent's, is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Literal

from outlive.engine.attempt import Attempt
from outlive.engine.journal import Item
from outlive.engine.replay import branch_scope
from outlive.engine.scope import Scope, Stop, current
from outlive.log import kinds
from outlive.log.fold import Call
from outlive.model.errors import Diverged, ForeignCancellation, Refused
from outlive.model.signals import Unwind

Start = Callable[[], Awaitable[object]]
Ends = Literal["gather", "map", "first"]
_SEPARATOR = "\x1f"


class Branches:
    """One gather, map or first, from its opening to what user code is told."""

    def __init__(self, attempt: Attempt, ends: Ends, starts: Mapping[str, Start], limit: int = 0) -> None:
        self._attempt, self._ends, self._starts = attempt, ends, starts
        self._turnstile = asyncio.Semaphore(limit) if limit else None
        self._limit, self._queued, self._begun = limit, 0, 0
        self._seen: set[str] = set()
        self._deciding = False
        self._line = self._scope = ""
        self._children: dict[str, Scope] = {}
        self._tasks: dict[str, asyncio.Task[object]] = {}

    async def run(self, line: str) -> dict[str, object]:
        """Results by branch key: of all of them, or for `first` of the winner alone. Raises what a branch raised."""
        attempt, asked = self._attempt, list(self._starts)
        self._line = line
        shown = f"{self._ends}({', '.join(asked)})"
        with attempt.entering(shown, line) as scope:
            self._scope = scope.name
            _refuse_unwritable(asked, f"run.{self._ends}")
            keys = self._recorded_as(scope, asked)
            self._starts = dict(zip(keys, self._starts.values(), strict=True))
            digested = attempt.digest(_SEPARATOR.join(keys).encode())
            scope.opening = True  # what is recorded of its branches comes before its own cancellation
            try:
                key, call = attempt.consume(scope, "branches", self._ends, digested, shown, line)
                if call is None:
                    await attempt.gate(scope)
                    fact = kinds.Opened(name=self._ends, digest=digested, shown=shown, branches=keys)
                    attempt.journal.buffer(Item(fact, scope.name, key))
                self._begin(scope, key, call)
            finally:
                scope.opening = False
            scope.consumed()
            results = await self._joined(scope, key, call) if keys else {}
            return {name: results[known] for name, known in zip(asked, keys, strict=True) if known in results}

    def _recorded_as(self, scope: Scope, asked: list[str]) -> list[str]:
        """The keys by which the branches are known: those of a gather come from names, which may have been others."""
        head = scope.cursor.head
        if self._ends != "gather" or head is None or head.kind != "branches" or len(head.branches) != len(asked):
            return asked
        present = []
        for known, name in zip(head.branches, asked, strict=True):
            old, new = known.rpartition(".")[0], name.rpartition(".")[0]
            present.append(new if old in self._attempt.agent.former(new) else old)
        return list(head.branches) if numbered(present) == asked else asked

    async def _joined(self, scope: Scope, key: str, call: Call | None) -> dict[str, object]:
        attempt = self._attempt
        scope.joining = True
        attempt.joins.append(self.moves)
        try:
            return await self._join(scope, key, call)
        finally:
            scope.joining, scope.branches = False, []
            attempt.joins.remove(self.moves)
            # What is unwound while a branch is in flight must not hide it: it still has to reach its record.
            for child in self._children.values():
                if child.task is None or child.task.done():
                    attempt.scopes.pop(child.name, None)
            attempt.changed.set()

    def moves(self) -> bool:
        """Whether it will go on by itself although no branch shows it: an end to deal with, or a place that is free."""
        if self._attempt.rests_in(self._scope):
            return False
        ended = {name for name, task in self._tasks.items() if task.done()}
        free = self._queued > 0 and self._begun < self._limit
        return free or len(ended) == len(self._tasks) or (self._deciding and bool(ended - self._seen))

    def _begin(self, scope: Scope, key: str, call: Call | None) -> None:
        for name, start in self._starts.items():
            child = self._children[name] = self._attempt.open(branch_scope(key, name))
            child.above = scope
            child.task = self._tasks[name] = asyncio.ensure_future(self._branch(child, start))
            child.task.add_done_callback(_unwound)  # where all is unwound nobody else looks at how it ended
        scope.branches = list(self._children.values())
        if call is not None and call.joined is None:
            self._reread(scope)
        for child in scope.branches:
            child.consumed()

    def _reread(self, scope: Scope) -> None:
        """Branches that nothing of their own ended were cancelled with the scope that waits, or not at all.

        Between the commit that cancels a scope and its being told, all of its branches may end, so that it goes on, or
        others may be opened.
        """
        ended_here = scope.cursor.exhausted and scope.cursor.cancelled is not None
        if not ended_here:
            for child in scope.branches:
                child.cursor.cancelled = None
        elif all(child.cursor.cancelled is None for child in scope.branches):
            for child in scope.branches:
                child.cursor.cancelled = scope.cursor.cancelled

    async def _branch(self, child: Scope, start: Start) -> object:
        current.set(child)
        async with AsyncExitStack() as stack:
            if self._turnstile is not None:
                child.joining = True
                self._queued += 1
                try:
                    await stack.enter_async_context(self._turnstile)
                finally:
                    self._queued -= 1
                child.joining = False
            self._begun += 1
            try:
                return await start()
            finally:
                self._begun -= 1
                child.joining = True
                self._leave(child)
                self._attempt.changed.set()

    def _leave(self, child: Scope) -> None:
        """A branch may not end with recorded calls that it did not ask for, unless it was cancelled."""
        if child.cancelled or self._attempt.closed:
            return
        try:
            child.cursor.leave(f"the end of the branch {child.name}")
        except Diverged as diverged:
            self._attempt.halt(Stop("diverged", str(diverged), diverged))
            raise Unwind("diverged") from diverged

    async def _join(self, scope: Scope, key: str, call: Call | None) -> dict[str, object]:
        try:
            told = call.joined if call is not None else None
            decided = told.branch if told is not None else await self._decide(scope, key)
            if decided is not None:
                await asyncio.wait([self._tasks[decided]])
            await self._wait_all()
            # None: its opening goes with what comes next, for no branch has recorded anything.
            recorded = call or self._attempt.fold.keys.get(key)
            if scope.cancelled or (recorded is not None and recorded.cut):
                raise asyncio.CancelledError
        except asyncio.CancelledError:
            self._deciding = False
            self._attempt.changed.set()
            if (scope.cancelled or self._attempt.leaving(scope)) and not self._attempt.closed:
                for child in scope.branches:
                    child.cancel(scope.cursor.cancelled or "")
                await self._wait_all()
            raise
        if decided is not None and self._ends == "first":
            return {decided: self._tasks[decided].result()}
        if decided is not None:
            self._tasks[decided].result()
            raise Diverged(has=f"a failure of the branch {decided}", asks="its success", line="")
        return {name: task.result() for name, task in self._tasks.items()}

    async def _decide(self, scope: Scope, key: str) -> str | None:
        """The branch that ends it all.

        The first to fail, or for `first` the first to end. Recorded before it is told.
        """
        left = set(self._tasks.values())
        self._deciding = True
        while left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for name, task in self._tasks.items():
                if task not in done:
                    continue
                if self._children[name].cancelled and not _unwound(task):
                    self._seen.add(name)
                    continue
                self._pass_on(task)
                if self._ends == "first" or task.exception() is not None:
                    await self._record(scope, key, name)
                    self._deciding = False
                    self._attempt.changed.set()
                    return name
                self._seen.add(name)
            self._attempt.changed.set()
        return None

    def _pass_on(self, task: asyncio.Task[object]) -> None:
        """A branch that was unwound is no answer: the attempt is over for all of them."""
        if task.cancelled():
            if not self._attempt.closed:
                fault = ForeignCancellation(call=f"a branch of {self._ends}", line=self._line)
                self._attempt.halt(Stop("fault", fault=fault))
            raise Unwind(self._attempt.closed or "a branch was cancelled")
        error = task.exception()
        if error is not None and not isinstance(error, Exception):
            raise error

    async def _record(self, scope: Scope, key: str, decided: str) -> None:
        how: Literal["failed", "won"] = "won" if self._ends == "first" else "failed"
        why, open_still = f"{decided} {how}", _open(scope)
        await self._attempt.journal.append(
            Item(kinds.Joined(branch=decided, how=how), scope.name, key),
            *(Item(kinds.ScopeCancelled(why=why), one.name) for one in open_still if one.cursor.cancelled is None),
        )
        for child in scope.branches:
            if child in open_still:
                child.cancel(why)

    async def _wait_all(self) -> None:
        await asyncio.wait(self._tasks.values())
        for task in self._tasks.values():
            error = _unwound(task)
            if error is not None:
                raise error


def _open(scope: Scope) -> list[Scope]:
    """All that has not ended below a scope."""
    still = [child for child in scope.branches if child.task is not None and not child.task.done()]
    return [*still, *(one for child in still for one in _open(child))]


def _unwound(task: asyncio.Task[object]) -> Unwind | None:
    error = None if task.cancelled() else task.exception()
    return error if isinstance(error, Unwind) else None


def _refuse_unwritable(names: list[str], what: str) -> None:
    """Raise Refused for a key that no scope can be named by."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Refused(what=f"{what} with the key {name!r}", why="a lone surrogate is no character") from None


def unique(names: list[str], what: str) -> None:
    """Raise Refused for two branches of one key."""
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if twice:
        raise Refused(what=f"{what} with the key {min(twice)!r} twice", why="each branch needs a key of its own")


def numbered(names: list[str]) -> list[str]:
    """Keys for branches that are known by what they call: `charge.0`, `charge.1`, `look_up.0`."""
    seen: dict[str, int] = {}
    keys = []
    for name in names:
        keys.append(f"{name}.{seen.get(name, 0)}")
        seen[name] = seen.get(name, 0) + 1
    return keys


def close_unused(awaitables: list[Coroutine[object, object, object]]) -> None:
    """Coroutines that will not be awaited, because the attempt is over, are closed rather than warned about."""
    for coroutine in awaitables:
        coroutine.close()
