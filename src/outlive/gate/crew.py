"""The processes that replay, and the one that reads for them.

Each of them takes one run after the other and has no store and no network. One that dies over a run, or does not come
back from it, has said something about that run; another process goes on with the rest.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO

from outlive.gate.judged import Judged, of
from outlive.gate.recorded import recorded
from outlive.gate.wire import CALL, JUDGED, TAKE, TELL, Frame, Line, answered, packed
from outlive.model.clock import SystemClock
from outlive.model.errors import DataError, Refused, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.model.run import RunRow
from outlive.store.keeping import Kept

Told = Callable[[Judged], None]

_MODULE = "outlive.gate.child"
_GRACE_S = 10.0
_START_S = 120.0
_SAID = 4096


@dataclass(frozen=True, slots=True)
class Target:
    """A run to be judged, and the store that has it. Of one from a file: which, and the tenant that it came from."""

    store: Kept
    tenant: Tenant
    run: RunId
    file: str = ""
    whose: Tenant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How to replay: the application by name, with or without what it depends on, and how long a run may take.

    `alone` asks for a network of its own for each process, where the system allows it.
    """

    app: str
    deps: bool = False
    limit_s: float = 30.0
    alone: bool = True
    jobs: int = 2


@dataclass(slots=True)
class Crew:
    """Judges runs in processes of their own. `alone` says, afterwards, whether they had no network."""

    orders: Orders
    told: Told
    alone: bool = True
    _left: deque[Target] = field(default_factory=deque)
    _refused: Refused | None = None

    async def judge(self, targets: Iterable[Target]) -> None:
        """Have all of them judged, each told as it is known. Raises Refused when the application cannot be imported."""
        self._left.extend(targets)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.orders.jobs, len(self._left))):
                    group.create_task(self._man())
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        if self._refused is not None:
            raise self._refused

    def refuse(self, why: str) -> None:
        """Nothing can be replayed with the application: no other process is tried, those at work come to their end."""
        self._refused = self._refused or Refused(what=f"the application {self.orders.app}", why=why)
        self._left.clear()

    async def _man(self) -> None:
        while self._left:
            one = _Member(self)
            await one.work()


def _first(error: BaseException) -> BaseException:
    """Of what went wrong in several processes at once, what is told."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _last_line(said: IO[bytes]) -> str:
    """What a process has said last; it may have said very much."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - _SAID))
    lines = said.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it has said nothing"


class _Member:
    """One process, from its start to its end."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._at: deque[tuple[Target, RunRow, int]] = deque()
        self._clock = SystemClock()
        self._since = self._clock.boottime()
        self._ready = self._took = False
        self._failed = ""

    async def work(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, tempfile.TemporaryFile() as said:
            with theirs:
                process = await self._start(theirs.fileno(), said)
            line = None
            try:
                line = Line(*await asyncio.open_connection(sock=ours))
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(self._watch(process))
                    while (frame := await line.receive()) is not None:
                        group.create_task(self._answer(line, frame))
                    watching.cancel()
            finally:
                if line is not None:
                    line.close()
                ours.close()
                await self._ended(process)
            self._over(process.returncode or 0, said)

    async def _ended(self, process: asyncio.subprocess.Process) -> None:
        """It ends when it sees that nobody is there. One that is dead already is not killed: its code would be lost."""
        try:
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _start(self, fd: int, said: IO[bytes]) -> asyncio.subprocess.Process:
        orders = self._crew.orders
        # -P: what stands in the current directory is the application's, and comes after ours.
        given = {"fd": fd, "app": orders.app, "deps": orders.deps, "limit_s": orders.limit_s, "alone": orders.alone}
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", _MODULE, json.dumps(given), pass_fds=[fd], stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=said,
        )  # fmt: skip

    async def _answer(self, line: Line, frame: Frame) -> None:
        with suppress(ConnectionError):
            await line.send(Frame(frame.what, frame.number, "", await self._said(frame)))

    async def _said(self, frame: Frame) -> bytes:
        if frame.what == TAKE:
            return await self._next()
        if frame.what == CALL:
            target = self._at[0][0] if self._at else None
            assert target is not None, "a question about no run"
            return await answered(target.store, frame.name, frame.body)
        assert frame.what == TELL
        match frame.name:
            case "judged":
                target, _, _ = self._at.popleft()
                self._since = self._clock.boottime()
                self._tell(target, JUDGED.validate_json(frame.body))
            case "ready":
                self._ready = True
                self._crew.alone = self._crew.alone and json.loads(frame.body)
            case "failed":
                self._crew.refuse(json.loads(frame.body))
            case _:
                raise AssertionError(frame.name)
        return b"null"

    async def _next(self) -> bytes:
        """The next run that is there; it may be gone since it was chosen."""
        while self._crew._left:
            target = self._crew._left.popleft()
            try:
                found = await recorded(target.store, target.tenant, target.run, target.whose)
            except UnknownRun:
                continue
            except DataError as error:
                await self._unreadable(target, error)
                continue
            if not self._at:
                self._since = self._clock.boottime()
            self._took = True
            self._at.append((target, found.row, len(found.entries)))
            return packed(found)
        return b"null"

    async def _unreadable(self, target: Target, error: DataError) -> None:
        """A log that cannot be read is no reason to say nothing about the others."""
        row = await target.store.run(target.tenant, target.run)
        if row is not None:
            self._tell(target, of(row, verdict="breaks", why=str(error)))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """End a process whose code does not let go: it cannot say so itself."""
        limit, clock = self._crew.orders.limit_s + _GRACE_S, self._clock
        while True:
            await clock.sleep(1.0)
            over = clock.boottime() - self._since
            if not self._ready and over > _START_S:
                self._failed = f"it cannot be imported within {_START_S:g} s"
            elif self._at and over > limit:
                self._failed = f"it does not let go of the event loop within {limit:g} s"
            else:
                continue
            process.send_signal(signal.SIGKILL)
            return

    def _over(self, code: int, said: IO[bytes]) -> None:
        """What the process had in hand when it ended is its fault; what it had been handed besides is not.

        Of one that has ended before it took anything: so would the next.
        """
        why = self._failed or f"the process that replays it has ended with {code}: {_last_line(said)}"
        if not self._at:
            if self._crew._left and not self._took:
                self._crew.refuse(why)
            return
        (target, row, entries), *others = self._at
        self._crew._left.extendleft(one for one, _, _ in reversed(others))
        self._tell(target, of(row, verdict="breaks", why=why, entries=entries))

    def _tell(self, target: Target, told: Judged) -> None:
        self._crew.told(replace(told, file=target.file, tenant=target.whose or told.tenant))
