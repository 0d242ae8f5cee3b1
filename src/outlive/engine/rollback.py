"""A rollback as a run: it waits for the end of the run that it undoes, then compensates its operations, newest first.

The log of that run is read, never reopened. Nothing is passed that may have happened: it is looked up, or a person is
waited for. What is recorded decides on replay; of what is not, the records as they are now.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

from outlive.engine import failures, inbox
from outlive.engine.attempt import Attempt
from outlive.engine.callables import run_callable
from outlive.engine.calls import Asked, Repeatable, repeat
from outlive.engine.cancelling import Request
from outlive.engine.compensation import Undo
from outlive.engine.control import Control
from outlive.engine.definition import AgentSpec, ToolSpec
from outlive.engine.doubt import left_to_wait_ms, watch
from outlive.engine.operation import Facts, Operation, Original
from outlive.engine.replay import show
from outlive.engine.scope import Parked, Scope, current
from outlive.engine.send import shielded
from outlive.engine.settle import LOOKUP_TIMEOUT, LOOKUPS
from outlive.engine.undoing import Left, Order, Undone
from outlive.log.codec import codec_of
from outlive.log.entry import Entry, verify
from outlive.log.outcomes import outcome_of
from outlive.model.errors import DataError, LeaseLost, NotInDoubt, TooEarly, UndecodableEntry, UnknownRun
from outlive.model.ids import OperationId, Owner, RunId
from outlive.model.operation import OPEN, DidNotHappen, Happened, OperationRow, Unclear
from outlive.model.run import Block, Head, RunRow
from outlive.store.port import Message

if TYPE_CHECKING:
    from outlive.engine.run import Run

T = TypeVar("T")

log = logging.getLogger("outlive.run")

Fate = Literal["compensate", "left", "in doubt", "nothing", "compensated", "unserved"]

_PAGE = 500
_SHOWN = 20
_PAUSE_LEAST_MS, _PAUSE_MOST_MS = 250, 30_000
# Beyond its grace, how long a run that was asked to end may go on before it is ended without its code.
_DEAF_MS = 60_000
_LINE = "rollback"


async def roll_back(run: object, order: Order) -> Undone:
    """What the log calls the agent of a rollback; `RollbackSpec` has the one that is called."""
    raise AssertionError((run, order))


class RollbackSpec(AgentSpec):
    """The agent that rolls back the runs of another one, on whose workers it is."""

    def __init__(self, agent: AgentSpec) -> None:
        super().__init__(agent.name, agent.version, roll_back)
        renamed = agent.renamed

        async def undo(run: Run[object], order: Order) -> Undone:
            return await Rollback(run._attempt, renamed, order).run()

        self.fn = undo


def fate(row: OperationRow, tool: ToolSpec | None) -> tuple[Fate, str]:
    """What a rollback does about an operation as its record is now, and why. `tool` is what it was a call of. Pure."""
    known: dict[str, tuple[Fate, str]] = {
        "compensated": ("compensated", f"by {row.compensated_by}"),
        "abandoned": ("left", "whether it happened is not known: it was abandoned"),
    }
    if tool is not None and tool.policy.harmless:
        return "nothing", "it is harmless"
    if row.status in OPEN:
        return "in doubt", "it is not known whether it happened"
    if row.status in known:
        return known[row.status]
    if row.status == "succeeded" and row.how in ("reuse", "shared"):
        shared = f"run {row.shared_run} has done it, under the same business key, as {row.shared_operation}"
        return "left", "another run of its lineage has done it" if row.how == "reuse" else shared
    if row.status != "succeeded" and not row.duplicates:
        return "nothing", f"it did not happen: {row.status}"
    if tool is None or tool.compensation is None:
        left: tuple[Fate, str] = ("left", f"tool {row.tool} has no compensation")
        return left if tool is not None else ("unserved", f"no tool {row.tool} is registered")
    twice = f"; it has acted {row.duplicates} times too often" if row.duplicates else ""
    return "compensate", f"by {tool.compensation.name}{twice}"


def newest_first(rows: Iterable[OperationRow]) -> list[OperationRow]:
    """By when they were sent: one that was held is behind what was sent before a person had decided about it."""
    return sorted(rows, key=lambda row: row.seq, reverse=True)


def shown(row: OperationRow) -> str:
    """An operation as people read it."""
    return show(row.tool, row.arguments)


class Rollback:
    """One attempt at a rollback."""

    def __init__(self, attempt: Attempt, renamed: dict[str, str], order: Order) -> None:
        self.attempt, self.order, self._renamed = attempt, order, renamed
        row = attempt.journal.row
        assert row.rolls_back is not None
        self.tenant, self.target = row.tenant, row.rolls_back
        self.control = Control(attempt.kit.store, attempt.kit.clock, row.owner or Owner(row.id))
        self._rows: list[OperationRow] = []
        self._over: set[str] = set()
        self._outcomes: dict[str, int] | None = None

    async def run(self) -> Undone:
        """From the end of the target to the last of its operations."""
        if not await self._has_ended():
            return Undone(self.target)
        more = True
        while more:
            # Once more, if anything was done: meanwhile it may have turned out that something passed did happen.
            self._rows = newest_first(await self._operations(self.target))
            more = False
            for row in self._rows:
                more = await self._pass(row) or more
        return await self._report()

    # ---- the end of the target

    async def _has_ended(self) -> bool:
        """Wait for it; False where there is nothing to undo, because the run did not fail after all."""
        attempt = self.attempt
        with attempt.entering(f"the end of run {self.target}", _LINE) as scope:
            while not (row := await self._target()).ended:
                if self.order.cause == "person":
                    await self._end(row)
                await self._wait(scope, self.target)
            while (earlier := await self._patiently(self._earlier)) is not None:
                await self._wait(scope, earlier)
        return self.order.cause != "failure" or row.status == "failed"

    async def _wait(self, scope: Scope, run: RunId) -> None:
        attempt = self.attempt
        await attempt.gate(scope)
        now = attempt.kit.time.now()
        waited = now - attempt.journal.row.created_at
        until = now + min(max(waited // 2, _PAUSE_LEAST_MS), _PAUSE_MOST_MS)
        await attempt.park(scope, Parked(f"the end of run {run}", until=until, message=True))

    async def _earlier(self) -> RunId | None:
        """A rollback of the run that was there before and is open; it is let know that it need not wait any longer."""
        me, store = self.attempt.journal.row, self.attempt.kit.store
        ids = [one.id for one in await store.rollbacks(self.tenant, self.target) if not one.ended]
        found = next((id for id in ids if (len(id), id) < (len(me.id), me.id)), None)
        if found is not None:
            told = Message(self.tenant, found, inbox.SETTLED_ELSEWHERE, f"{self.target}:{me.id}", "{}")
            await store.post(told, now=self.attempt.kit.clock.now())
        return found

    async def _end(self, row: RunRow) -> None:
        """Have it cancelled, as whoever asked for the rollback would. Once, however often this is come to."""
        request = Request("cancel", self.order.who, f"it is rolled back: {self.order.why}")
        key = f"rollback {self.attempt.journal.row.id}"
        await self._patiently(lambda: self.control.cancel(row, request, key=key))
        asked = next((one for one in await self._unread(row) if one.sender_key == key), None)
        if asked is not None and self.attempt.kit.time.now() > asked.at + request.grace_ms + _DEAF_MS:
            with suppress(LeaseLost):
                await self.control.enforce(row.tenant, row.id)

    # ---- one operation after the other

    async def _pass(self, row: OperationRow) -> bool:
        """See to it that nothing of this operation stands in the way of the ones before it; whether that took time."""
        scope, busy = current.get(), False
        while True:
            if (head := scope.cursor.head) is not None:
                if head.digest == self._digest(b"look-up", row):
                    await self._look_up(row)
                    busy = True
                    continue
                if head.digest == self._digest(b"compensation", row):
                    await self._compensate(row)
                    busy = True
                return busy  # what is recorded next is of another one: this one was passed
            row = await self._fresh(row)
            match fate(row, self._tool(row)):
                case ("in doubt", _):
                    await self._settle(row)
                case ("unserved", why):
                    await self._block(row, "compensation failed", f"{shown(row)}: {why} in this build")
                case ("compensate", _) if row.id not in self._over:
                    before = await self._before(row)
                    if any(one.status == "abandoned" for one in before):
                        return busy  # a person has said that nobody can know whether that has undone it
                    if doubtful := next((one for one in before if one.status in OPEN), None):
                        why = f"{_named(doubtful)}, which compensates {shown(row)}, is {doubtful.status}"
                        await self._block(row, "operation in doubt", why)
                    else:
                        await self._compensate(row)
                case _:
                    return busy
            busy = True

    async def _before(self, row: OperationRow) -> list[OperationRow]:
        """What other rollbacks of the run have done about the operation."""
        found = list[OperationRow]()
        for other in await self._patiently(lambda: self.attempt.kit.store.rollbacks(self.tenant, self.target)):
            if other.id != self.attempt.journal.row.id:
                found += await self._operations(other.id)
        return [one for one in found if one.compensates == row.id]

    async def _block(self, row: OperationRow, reason: Block, why: str) -> None:
        with self.attempt.entering(f"undo {shown(row)}", _LINE) as scope:
            await self._park(scope, reason, self._rest(row, why))

    async def _park(self, scope: Scope, reason: Block, detail: str) -> None:
        await self.attempt.gate(scope)
        await self.attempt.park(scope, Parked("a person decides", block=reason, detail=failures.writable(detail)))

    def _rest(self, row: OperationRow, why: str) -> str:
        """Why it does not go on, and what waits for that."""
        behind = False
        left: list[str] = []
        for one in self._rows:
            if behind and fate(one, self._tool(one))[0] in ("compensate", "in doubt", "unserved"):
                left.append(f"{one.id} {shown(one)}")
            behind = behind or one.id == row.id
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        return f"{why}; still to undo: {', '.join(left[:_SHOWN]) or 'nothing else'}{more}"

    async def _compensate(self, row: OperationRow) -> None:
        attempt, tool = self.attempt, self._tool(row)
        scope = current.get()
        head = scope.cursor.head
        name = tool.compensation.name if tool is not None and tool.compensation is not None else ""
        # What was recorded under another name counts all the same: what it undoes says which it is.
        asked = Asked(head.name if head else name, self._digest(b"compensation", row), f"undo {shown(row)}", _LINE)
        with attempt.entering(asked.shown, _LINE) as scope:
            key, call = attempt.consume(scope, "operation", asked.name, asked.digest, asked.shown, _LINE)
            self._over.add(row.id)
            if call is not None and call.done:
                return
            while tool is None or tool.compensation is None:
                await self._park(scope, "compensation failed", self._rest(row, f"{asked.shown}: nothing does it here"))
            original = await self._original(scope, row, tool)
            undo = Undo(attempt, scope, tool.compensation, asked, key, original, lambda why: self._rest(row, why))
            call = await shielded(scope, undo.run(call))
            if call.cut:
                raise asyncio.CancelledError

    # ---- doubt

    async def _settle(self, row: OperationRow) -> None:
        """One move towards knowing whether it happened; whoever calls looks at its record again."""
        attempt, tool = self.attempt, self._tool(row)
        with attempt.entering(f"what became of {shown(row)}", _LINE) as scope:
            await attempt.gate(scope)
            now = attempt.kit.time.now()
            if await self._unread(await self._target()):
                # Somebody may have said it.
                with suppress(LeaseLost):
                    await self._patiently(lambda: self.control.take_in(self.tenant, self.target))
                if await self._unread(await self._target()):
                    await attempt.park(scope, Parked("what was said of it", until=now + 1000, message=True))
                return
            digest = self._digest(b"look-up", row)
            # Those before a person has let it be tried again do not count.
            asked = [
                one for one in attempt.fold.keys.values() if one.digest == digest and one.seq > attempt.fold.retried
            ]
            if tool is None or tool.policy.reconcile is None or any(call.error and call.done for call in asked):
                why = "it cannot be looked up" if not asked else f"{LOOKUPS.attempts} look-ups gave no answer"
                await self._park(scope, "operation in doubt", self._rest(row, f"{_named(row)}: {why}"))
                return
            if row.id not in attempt.kit.doubts_since:
                watch(attempt.kit, row.id, row.not_before)
            left = max(row.not_before - now, left_to_wait_ms(attempt.kit, row.id))
            if left > 0:
                await attempt.park(scope, Parked(f"look-up of {shown(row)}", until=now + left, message=True))
                return
        await self._look_up(row)

    async def _look_up(self, row: OperationRow) -> None:
        """Ask the other side, durably; what it says is told to the run whose operation it is."""
        attempt, tool = self.attempt, self._tool(row)
        text = codec_of(str)
        asked = Asked(f"{row.tool} look-up", self._digest(b"look-up", row), f"look-up of {shown(row)}", _LINE)
        with attempt.entering(asked.shown, _LINE) as scope:
            key, call = attempt.consume(scope, "step", asked.name, asked.digest, asked.shown, _LINE)
            if call is None or not call.done:
                while tool is None or tool.policy.reconcile is None:
                    why = f"{_named(row)}: nothing looks it up in this build"
                    await self._park(scope, "operation in doubt", self._rest(row, why))
                looks = partial(_looked_up, attempt, scope, tool, row)
                looking = Repeatable(asked, False, looks, text, LOOKUP_TIMEOUT, LOOKUPS)
                call = await repeat(attempt, scope, key, looking, call)
            if call.error is None:
                await self._tell(row, json.loads(str(text.decode(call.payload or '""', where=asked.shown))))

    async def _tell(self, row: OperationRow, answer: dict[str, str | None]) -> None:
        target, row = await self._target(), await self._fresh(row)
        happened = answer["said"] == "happened"
        said = inbox.Decision(
            row.id, row.attempt, "happened" if happened else "did-not-happen", self.attempt.journal.row.id,
            f"it was looked up: {answer['note']}", answer["payload"],
        )  # fmt: skip
        while True:
            try:
                await self._patiently(lambda: self.control.resolve(target, row, said))
                return
            except NotInDoubt:
                return
            except TooEarly as early:
                await self.attempt.kit.clock.sleep(early.seconds)

    # ---- what is read

    async def _original(self, scope: Scope, row: OperationRow, tool: ToolSpec) -> Original:
        """The operation as `compensate=` gets it. Parks while this build cannot read it."""
        while True:
            try:
                text = await self._outcome(row)
                outcome = None if text is None else tool.signature.result.decode(text, where=f"the outcome of {row.id}")
            except DataError as error:
                await self._park(scope, "compensation failed", self._rest(row, f"undo {shown(row)}: {error}"))
                continue
            arguments, notes = _arguments(tool, row), dict(row.notes)
            return Original(row.id, row.run, row.tool, row.key, arguments, outcome, notes, row.duplicates)

    async def _outcome(self, row: OperationRow) -> str | None:
        """The whole outcome, which only the log has. Raises ChainBroken, UndecodableEntry."""
        if self._outcomes is None:
            self._outcomes = await self._read_log()
        seq = self._outcomes.get(row.id)
        if seq is None:
            return row.outcome
        [entry] = await self._entries(seq - 1, 1)
        return entry.payload

    async def _read_log(self) -> dict[str, int]:
        """By operation, the entry of the target's log that has its outcome; the log fits its chain."""
        head, found = Head(0, b""), dict[str, int]()
        while page := await self._entries(head.seq - 1, _PAGE):
            head = verify(self.attempt.key, self.target, page, head.digest)
            for entry in page:
                if operation := outcome_of(entry, found):
                    found[operation] = entry.seq
        return found

    async def _entries(self, after: int, limit: int) -> list[Entry]:
        return await self._patiently(
            lambda: self.attempt.kit.store.entries(self.tenant, self.target, after=after, limit=limit)
        )

    def _tool(self, row: OperationRow) -> ToolSpec | None:
        tool = self.attempt.kit.tool
        return tool(row.tool) or tool(self._renamed.get(row.tool, ""))

    def _digest(self, what: bytes, row: OperationRow) -> str:
        return self.attempt.digest(what, row.id.encode())

    async def _target(self) -> RunRow:
        row = await self._patiently(lambda: self.attempt.kit.store.run(self.tenant, self.target))
        if row is None:
            raise UnknownRun(run=self.target)
        return row

    async def _unread(self, row: RunRow) -> list[Message]:
        return await self._patiently(lambda: self.attempt.kit.store.unread(row.tenant, row.id))

    async def _operations(self, run: RunId) -> list[OperationRow]:
        return await self._patiently(lambda: self.attempt.kit.store.operations(self.tenant, run))

    async def _fresh(self, row: OperationRow) -> OperationRow:
        found = await self._patiently(lambda: self.attempt.kit.store.operation(self.tenant, OperationId(row.id)))
        return found or row

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await self.attempt.patiently(ask, f"run {self.target}")

    async def _report(self) -> Undone:
        done, left = list[str](), list[Left]()
        mine = {call.sent.compensates: call for call in self.attempt.fold.operations.values() if call.sent}
        asked = {call.digest: call for call in self.attempt.fold.keys.values()}
        for row in newest_first(await self._operations(self.target)):
            what, why = fate(row, self._tool(row))
            if what == "compensated":
                done.append(row.id)
            elif what == "compensate":
                call = mine.get(row.id) or asked.get(self._digest(b"compensation", row))
                error = f": {call.error.message}" if call is not None and call.error is not None else ""
                left.append(Left(row.id, row.tool, f"its compensation was given up by a person{error}"))
            elif what in ("left", "in doubt", "unserved"):
                left.append(Left(row.id, row.tool, why))
        return Undone(self.target, done, left)


class StillUnclear(Exception):
    """A look-up could not say what became of an operation: it is asked again later."""


async def _looked_up(attempt: Attempt, scope: Scope, tool: ToolSpec, row: OperationRow, _: int) -> str:
    """What `reconcile=` says, as text. Raises StillUnclear."""
    facts = Facts(row.id, row.key, row.attempt, _arguments(tool, row), dict(row.notes))
    op: Operation[object] = Operation(attempt, tool, attempt.kit.deps, facts, scope=scope)
    assert tool.policy.reconcile is not None
    answer, payload = await run_callable(tool.policy.reconcile, op), None
    match answer:
        case Happened():
            codec, where = tool.signature.result, f"look-up of {tool.name}"
            payload = failures.clean(attempt.kit.scrubber, codec, codec.encode(answer.outcome, where=where), where)
        case DidNotHappen():
            pass
        case Unclear():
            raise StillUnclear(answer.note)
        case _:
            raise StillUnclear(f"the look-up returned {type(answer).__name__}, not Happened, DidNotHappen or Unclear")
    said = "happened" if isinstance(answer, Happened) else "did not happen"
    return json.dumps({"said": said, "note": failures.writable(str(answer.note or said)), "payload": payload})


def _arguments(tool: ToolSpec, row: OperationRow) -> dict[str, object]:
    """By parameter name, of their types; as they are written where they cannot be read."""
    try:
        return tool.signature.decode(row.arguments, where=f"the arguments of {row.id}")
    except UndecodableEntry:
        raw: object = json.loads(row.arguments)
        return raw if isinstance(raw, dict) else {}


def _named(row: OperationRow) -> str:
    return f"operation {row.id} of run {row.run}, {shown(row)}"
