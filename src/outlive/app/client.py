"""What the world outside holds of a run: `Handle`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from typing import Generic, TypeVar, cast

from outlive.app import mail, stop
from outlive.app.following import Event, Following
from outlive.engine import forking, undoing
from outlive.engine.control import Control
from outlive.engine.definition import AgentSpec
from outlive.engine.undoing import Undone
from outlive.engine.worker import owner_name
from outlive.log import kinds
from outlive.log.codec import codec_of
from outlive.log.entry import Entry
from outlive.model.clock import Clock
from outlive.model.errors import Refused, RunCancelled, RunExpired, RunFailed, TimedOut, UndecodableEntry, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.model.run import RunRow
from outlive.store.port import Store
from outlive.store.streaming import Streaming

R_co = TypeVar("R_co", covariant=True)

_PAUSE_LEAST, _PAUSE_MOST = 0.01, 0.25
_BACK = 100
_LONGEST_CURSOR = 18


class Handle(Generic[R_co]):
    """A run, as the world outside sees it."""

    def __init__(self, store: Callable[[], Store], clock: Clock, agent: AgentSpec, tenant: Tenant, run: RunId) -> None:
        self.id: str = run
        self._store, self._clock, self._agent, self._tenant, self._run = store, clock, agent, tenant, run

    async def status(self) -> str:
        """One of ready, running, waiting, blocked, succeeded, failed, cancelled, expired. Raises UnknownRun."""
        return (await self._row()).status

    async def result(self, *, timeout: timedelta | None = None) -> R_co:
        """Wait for the end and give what the agent returned.

        Raises RunFailed, RunCancelled or RunExpired for a run that ended otherwise, TimedOut when `timeout` is over
        (the run goes on), UnknownRun. A blocked run is waited for: a person will let it go on.
        """
        until = None if timeout is None else self._clock.boottime() + timeout.total_seconds()
        pause = _PAUSE_LEAST
        while True:
            row = await self._row()
            if row.ended:
                return await self._outcome(row)
            if until is not None and self._clock.boottime() >= until:
                raise TimedOut(run=self.id, status=row.status, detail=row.detail or row.reason)
            left = pause if until is None else min(pause, max(0.001, until - self._clock.boottime()))
            await self._clock.sleep(left)
            pause = min(pause * 1.5, _PAUSE_MOST)

    def events(self, *, after: str | None = None, deltas: bool = False) -> AsyncGenerator[Event]:
        """What the run makes known, from the beginning or after a cursor, until the run has ended.

        Only what is committed: who goes on from the cursor of the last event that he has seen misses nothing and sees
        nothing twice. Raises Refused at once for what is no cursor; and with the first event UnknownRun, or Refused for
        a cursor that the log does not have, or has no more since the database has lost it.

        With `deltas` also text that calls stream while they are made, in its place between the events. It is no fact:
        what was missed of it is not seen again, and what its call records supersedes it.
        """
        seq = -1 if after is None else _seq(after)
        return self._events(seq, Following(seq) if deltas else None)

    async def send(self, topic: str, message: object, *, key: str) -> None:
        """Send a message to the run, which receives it on `topic`: before it waits for it, while it does, or later.

        It is stored when this returns. A second one with the same `key` on the same topic changes nothing, whatever it
        says: send it again as often as you are in doubt. Raises UnknownRun, NotSerialisable, and Refused for a topic
        that is no name.
        """
        body = mail.written(message, f"the message on {topic}")
        await mail.send(self._store(), self._tenant, self._run, topic, body, key, self._clock.now())

    async def answer(self, question: str, answer: object, *, who: str) -> None:
        """Answer a question that the run has asked; `question` is the `id` that its event `run.asked` gives.

        The first answer counts. Raises as `send`, and Refused for what is no question's id.
        """
        body = mail.written(answer, "the answer")
        await mail.answer(self._store(), self._tenant, self._run, question, body, who, self._clock.now())

    async def cancel(
        self, *, who: str, why: str = "", grace: timedelta = stop.GRACE, wait: timedelta = stop.AT_ONCE
    ) -> stop.Cancelled:
        """Ask that the run ends: its code is told, and may clean up for `grace`.

        The request is stored when this returns, and cannot be lost: *cancelled* if the run has ended by it within
        `wait`, *asked* if it will, *too late* if it had ended otherwise. Where no live worker serves the run, it is
        ended here. Raises UnknownRun.
        """
        return await stop.cancel(self._control(), self._tenant, self.id, who=who, why=why, grace=grace, wait=wait)

    async def terminate(self, *, who: str, why: str = "") -> None:
        """End the run at once, without its code, whatever it is doing. Raises UnknownRun, WrongState for an ended run.

        What may have been sent becomes *unknown*.
        """
        await stop.terminate(self._control(), self._tenant, self.id, who=who, why=why)

    async def pause(self, *, who: str, why: str = "", wait: timedelta = stop.AT_ONCE) -> stop.Paused:
        """Let the run stand still until it is resumed, once its calls in flight have reached their record.

        *paused* if that is so within `wait`, *asked* if it will be, *too late* if the run has ended meanwhile. Raises
        UnknownRun, and WrongState for an ended run.
        """
        return await stop.pause(self._control(), self._tenant, self.id, who=who, why=why, wait=wait)

    async def resume(self, *, who: str, why: str = "") -> None:
        """Let a paused run go on where it was. Raises UnknownRun, and WrongState for a run that is not paused."""
        await stop.resume(self._control(), self._tenant, self.id, who=who, why=why)

    def _control(self) -> Control:
        return Control(self._store(), self._clock, owner_name(self._clock))

    async def fork(
        self, *, who: str, at: int | None = None, why: str = "", id: str | None = None, repeat_effects: bool = False
    ) -> Handle[R_co]:
        """A new run that begins with this one's log up to entry `at` (None: as far as possible, 0: only the input).

        This run has to have ended, or to be paused. The fork acts on the authority of `who`. What this run has done
        behind that entry, and the fork comes to do too, blocks the fork until a person decides, or with
        `repeat_effects` is done again. With an `id`, the same fork twice is one. Raises UnknownRun, WrongState,
        NotForkable (it names the nearest entry), RunExists, BadArguments.
        """
        wish = forking.Wish(at=at, who=who, why=why, id=id, repeat_effects=repeat_effects)
        row = await forking.fork(self._store(), self._clock, self._tenant, self._run, wish)
        return Handle(self._store, self._clock, self._agent, self._tenant, row.id)

    async def rollback(self, *, who: str, why: str) -> Handle[Undone]:
        """Have undone what the run has done: by a run of its own, whose handle this is; it is stored when this returns.

        Operations are compensated newest first, as `compensate=` of each tool says, once the run has ended; a run that
        has not is cancelled. A rollback that is open already is the same one, unless it waits for the run to end by
        itself. Raises UnknownRun, BadArguments for a `who` or `why` that says nothing, and WrongState for a run that is
        a rollback itself.
        """
        row = await undoing.by_person(self._store(), self._clock, await self._row(), who, why)
        return Handle(self._store, self._clock, self._agent, self._tenant, row.id)

    async def _events(self, seq: int, following: Following | None) -> AsyncGenerator[Event]:
        pause = _PAUSE_LEAST
        while True:
            row = await self._row()
            if seq >= row.head.seq:
                raise Refused(what=f"the cursor {seq}", why=f"the log of run {self.id} has no entry of that number")
            # Known before the entries are read: what ends a run is one of them.
            ended = row.ended
            entries = await self._store().entries(self._tenant, self._run, after=seq, limit=_BACK)
            for entry in entries:
                for over in following.passed(entry, str(max(seq, 0))) if following is not None else ():
                    yield over
                seq, pause = entry.seq, _PAUSE_LEAST
                if (event := _event(entry)) is not None:
                    yield event
            if entries:
                continue
            if ended:
                return
            for delta in await self._streamed(following, str(seq)) if following is not None else ():
                yield delta
                pause = _PAUSE_LEAST
            await self._clock.sleep(pause)
            pause = min(pause * 1.5, _PAUSE_MOST)

    async def _streamed(self, following: Following, cursor: str) -> list[Event]:
        """The text on its way that may be shown now."""
        store = self._store()
        if not isinstance(store, Streaming):
            return []
        deltas = await store.deltas(self._tenant, self._run, after=following.position, limit=_BACK)
        while (lacks := following.lacks(deltas))[0] < lacks[1]:
            after = max(lacks[0], lacks[1] - _BACK) - 1
            following.learn(
                await store.entries(self._tenant, self._run, after=after, limit=lacks[1] - after - 1), after + 1
            )
        return following.show(deltas, cursor)

    async def _row(self) -> RunRow:
        row = await self._store().run(self._tenant, self._run)
        if row is None:
            raise UnknownRun(run=self.id)
        return row

    async def _outcome(self, row: RunRow) -> R_co:
        ended, payload = await last_entry(self._store(), row)
        if ended.status == "succeeded" and row.rolls_back is not None:
            return cast(R_co, codec_of(Undone).decode(payload or "null", where=f"the result of run {self.id}"))
        if ended.status == "succeeded":
            return cast(R_co, self._agent.result.decode(payload or "null", where=f"the result of run {self.id}"))
        if ended.status == "expired":
            raise RunExpired(run=self.id)
        if ended.status == "cancelled":
            raise RunCancelled(run=self.id, why=ended.reason)
        error = ended.error or kinds.ErrorRecord(type=ended.status, message=ended.reason)
        raise RunFailed(run=self.id, type=error.type, message=error.message)


def _seq(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= _LONGEST_CURSOR):
        raise Refused(what=f"the cursor {cursor[:40]!r}", why="a cursor is that of an event")
    return int(cursor)


def _event(entry: Entry) -> Event | None:
    fact = kinds.read(entry)
    match fact:
        case kinds.Emitted():
            name, data = fact.name.removeprefix("emit:"), entry.payload or "{}"
            return Event(str(entry.seq), name, cast("dict[str, object]", json.loads(data)))
        case kinds.Waiting() if entry.payload is not None:
            asked = {
                "question": json.loads(entry.payload), "role": fact.role, "id": fact.topic, "expects": fact.expects,
            }  # fmt: skip
            return Event(str(entry.seq), "run.asked", asked)
        case kinds.Blocked():
            return Event(str(entry.seq), "run.blocked", {"reason": fact.reason, "detail": fact.detail})
        case kinds.Ended():
            return Event(str(entry.seq), "run.ended", {"status": fact.status, "reason": fact.reason})
        case _:
            return None


async def last_entry(store: Store, row: RunRow) -> tuple[kinds.Ended, str | None]:
    """The entry that ended a run, and its payload; what came after it are resolutions, evidence and audit."""
    before = row.head.seq
    while before > 0:
        after = max(before - _BACK, 0) - 1
        for entry in reversed(await store.entries(row.tenant, row.id, after=after, limit=_BACK)):
            fact = kinds.read(entry) if entry.kind == kinds.Ended.KIND else None
            if isinstance(fact, kinds.Ended):
                return fact, entry.payload
        before = after + 1
    raise UndecodableEntry(where=f"the log of run {row.id}", why=f"it is {row.status}, but no entry says so")
