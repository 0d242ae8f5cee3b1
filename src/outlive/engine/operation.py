"""An operation as tool code holds it.

What is being done, the key to do it once, and the tools to be honest about it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, Never, ParamSpec, Protocol, cast

from typing_extensions import TypeVar

from outlive.engine import streaming
from outlive.engine.attempt import Attempt
from outlive.engine.definition import ToolSpec
from outlive.engine.failures import writable
from outlive.engine.journal import Item
from outlive.engine.scope import Scope
from outlive.engine.waits import moment
from outlive.log import kinds
from outlive.model.errors import Refused, SecretMissing, SettingInvalid
from outlive.model.operation import Pending
from outlive.model.signals import NotSent, ToldToStop
from outlive.secret.port import read_secret

D = TypeVar("D", default=None)
P = ParamSpec("P")

log = logging.getLogger("outlive.operation")


class Connection(Protocol):
    """The run's database, inside the transaction that will also record the outcome."""

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Run one statement and return its rows."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """What an operation knows of itself; `number` is the attempt, from 1."""

    id: str
    key: str
    number: int
    arguments: dict[str, object]
    notes: dict[str, str] = field(default_factory=dict)
    not_after: int = 0


@dataclass(frozen=True, slots=True)
class Original:
    """An operation that is being compensated, as its run has recorded it.

    `arguments` are by parameter name, of the types that the tool declares; where they hold the value of a secret, they
    are what is written in its place, under *scrubbed*. `outcome` is what the tool returned, None where nobody knows it.
    `key` is the key that it was sent under, `notes` what it noted. `duplicates` is how often it has acted too often.
    """

    id: str
    run_id: str
    tool: str
    key: str
    arguments: dict[str, object]
    outcome: object
    notes: dict[str, str]
    duplicates: int = 0


class WindowOver(NotSent):
    """Nothing was sent: the authority to send, as it was when the intent was written, has run out."""


def _of_any_type(fn: Callable[P, object]) -> Callable[P, Never]:
    """To type checkers what is returned stands for a result of whatever type the tool has."""
    return cast("Callable[P, Never]", fn)


class Operation(Generic[D]):
    """What tool code (and `reconcile`) holds: what is being done, the key to do it once, and the tools to be honest.

    `key` is the idempotency key: stable over re-sends, unique per call; pass it to the other side. `not_after` is the
    last moment (milliseconds since 1970) at which a request of this attempt may be acted on; pass it where it is
    honoured. `arguments` are those of the call, by parameter name; one that compensates has none, but an `original`.
    """

    def __init__(
        self, attempt: Attempt, tool: ToolSpec, deps: D, facts: Facts, *, send_until: float | None = None,
        connection: Connection | None = None, scope: Scope | None = None, original: Original | None = None,
    ) -> None:  # fmt: skip
        self.id, self.key, self.attempt, self.arguments = facts.id, facts.key, facts.number, facts.arguments
        self.deps = deps
        self.run_id: str = attempt.journal.row.id
        self.notes = facts.notes
        self.not_after = facts.not_after
        self.log = logging.LoggerAdapter(log, {"run": self.run_id, "operation": facts.id})
        self._seam, self._tool, self._connection, self._scope = attempt, tool, connection, scope
        self._send_until, self._original = send_until, original
        # For threads that know nothing of the context in which they were made.
        self._stream = streaming.current.get()
        self.begun = self.sent_late = self._ended = False

    async def note(self, **facts: str) -> None:
        """Make facts durable before going on: a later attempt, a look-up or a person can read them in `notes`."""
        if self._connection is not None:
            raise Refused(what="op.note in a transactional tool", why="write through op.connection: it commits with it")
        if self._send_until is None:
            raise Refused(what="op.note in a read tool or a look-up", why="only an operation that acts has notes")
        if self._ended:
            raise Refused(what="op.note after the call has ended", why="await what notes before the tool returns")
        clean = {name: self._seam.kit.scrubber.scrub(writable(str(value))) for name, value in facts.items()}
        await self._seam.journal.append(Item(kinds.Noted(operation=self.id, facts=clean)))
        self.notes.update(clean)

    @_of_any_type
    def pending(self, *, until: timedelta | datetime) -> Pending:
        """Say that the other side has taken it on and tells the outcome later: `return op.pending(until=…)`.

        `app.complete` with this operation's `id` is how it does. The run waits, unloaded, for so long or until an
        instant (with its time zone); after that the operation is looked up, or a person decides. Raises Refused in a
        tool that is *read* or *transactional*, in a look-up, and for a time that is over.
        """
        what = f"op.pending in {self._tool.name}"
        if self._connection is not None or self._tool.policy.effect in ("read", "transactional"):
            why = (
                f"a {self._tool.policy.effect} tool has its outcome when it ends; declare what acts elsewhere external"
            )
            raise Refused(what=what, why=why)
        if self._send_until is None or self._ended:
            raise Refused(what=what, why="only the call itself can say so, while it runs, and not a look-up")
        now = self._seam.kit.time.now()
        at = moment(until, now)
        if at <= now:
            raise Refused(what=f"op.pending(until={until})", why="that time is over")
        return Pending(at)

    def stream(self, text: str) -> None:
        """Let whoever follows the run see text of this call while it is made, as `outlive.events.stream` does."""
        running = self._stream or streaming.current.get()
        if running is not None and not self._ended:
            running.add(text)

    async def secret(self, name: str) -> str:
        """The value of a secret. It is scrubbed from every entry, error and log line from now on.

        Read it before anything is sent: where no provider has it, NotSent is raised, so that the call is tried again.
        """
        try:
            value = await asyncio.to_thread(read_secret, self._seam.kit.secrets, name)
            self._seam.kit.scrubber.register(name, value)
        except (SecretMissing, SettingInvalid) as error:
            # Read secrets before anything is sent: then it is certain that nothing was.
            raise NotSent(str(error)) from error
        return value

    @property
    def connection(self) -> Connection:
        """The database, for a `transactional` tool.

        What is executed commits together with the outcome, or not at all.
        """
        if self._connection is None:
            raise Refused(what=f"op.connection in {self._tool.name}", why="declare effect='transactional'")
        return self._connection

    @property
    def original(self) -> Original:
        """The operation to undo, for what was declared with `compensate=`."""
        if self._original is None:
            raise Refused(
                what=f"op.original in {self._tool.name}", why="only what compensates another operation has it"
            )
        return self._original

    def close(self) -> None:
        """The body has ended: a task or thread that it left behind sends and notes nothing any more."""
        self._ended = True

    def raise_if_lost(self) -> None:
        """Raise NotSent when the run is no longer ours, and ToldToStop when it is being cancelled.

        Do not begin what cannot be recorded. A call that raises ToldToStop is in doubt: catch it and raise NotSent
        where it is certain that nothing was sent.
        """
        self._raise_if_lost()
        if self._scope is not None and self._seam.leaving(self._scope):
            raise ToldToStop("the run is being cancelled")

    def _raise_if_lost(self) -> None:
        if self._ended:
            raise NotSent("the call has ended")
        if self._seam.journal.grip.lost or self._seam.closed:
            raise NotSent("the run is not ours any more")

    def guard(self) -> None:
        """Raise NotSent when the send window is over. Call it right before bytes go out; the HTTP transport does."""
        self._raise_if_lost()
        if self._send_until is not None and self._seam.kit.clock.boottime() > self._send_until:
            raise WindowOver("the send window is over")

    def begin(self) -> None:
        """The body is about to run: the first check of the window, on the thread that will send."""
        self.guard()
        self._stream = streaming.current.get()
        self.begun = True

    def sent(self) -> None:
        """Say that bytes have just gone out, where one knows it; the HTTP transport does.

        A process that was stopped between `guard` and the write notices here that it sent after its window. Somebody
        may have been told meanwhile that it did not happen: that is left as evidence.
        """
        if self._send_until is not None and self._seam.kit.clock.boottime() > self._send_until:
            self.sent_late = True


# The operation that the running code sends, for transports that guard the moment before bytes go out.
sending: ContextVar[Operation[object] | None] = ContextVar("outlive_operation", default=None)


Trace = Callable[[str, Mapping[str, object]], Awaitable[None]]
"""How HTTP clients of the family of httpx tell of the steps of a request: their extension `trace`."""


def guarding(op: Operation[D], given: Trace | None) -> Trace:
    """Leave is asked for at the last moment before a request goes out; what went out after its window is told of.

    Whoever traces the request already is told as before.
    """

    async def trace(event: str, info: Mapping[str, object]) -> None:
        if event.endswith(".send_request_headers.started"):
            op.guard()
        elif event.endswith((".send_request_headers.complete", ".send_request_headers.failed")):
            op.sent()
        if given is not None:
            await given(event, info)

    return trace
