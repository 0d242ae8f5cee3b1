"""Drives one claimed run to where it stops: recovery, the agent's function, and the one append that ends the attempt.

An attempt ends in exactly one of these ways: the run ended, waits, is blocked, was released, or is not ours any more.
Before user code runs, what others wrote is taken in and every operation that an earlier attempt may have sent is in
doubt (`unknown`), so that one which replay never reaches is not forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, Protocol, TypeVar

from outlive.engine import failures, inbox, undoing
from outlive.engine.adoption import by_rule, difference
from outlive.engine.attempt import Attempt, Kit
from outlive.engine.authority import Grip, Keeper
from outlive.engine.cancelling import Request, end_of, late
from outlive.engine.definition import AgentSpec
from outlive.engine.doubt import doubts, watch
from outlive.engine.journal import Also, Item, Journal
from outlive.engine.losses import Losses
from outlive.engine.rules import who
from outlive.engine.run import Run, running
from outlive.engine.scope import Parked, Scope, Stop, current
from outlive.log import kinds
from outlive.log.entry import Entry, verify
from outlive.log.fold import Fold, fold
from outlive.model.errors import ChainBroken, DataError, Diverged, OutliveError, Refused, StoreError, UndecodableEntry
from outlive.model.ids import Owner
from outlive.model.run import Block, Head, RunRow, Status, may_follow
from outlive.model.signals import Unwind
from outlive.store.port import Change, Claimed, Divergence, Message

log = logging.getLogger("outlive.worker")

Verdict = Literal["ended", "waiting", "blocked", "released", "lost"]
T = TypeVar("T")
Ask = Callable[[], Awaitable[T]]
End = tuple[kinds.Fact, Change, Divergence | None]

_NEVER = 2**62
_DAY_MS = 86_400_000
_GO_ON: frozenset[Status] = frozenset(("ready", "waiting"))
_VERDICTS: dict[Status, Verdict] = {"ready": "released", "waiting": "waiting", "blocked": "blocked"}


class Harness(Protocol):
    """The seam to what turns a run into calls; it holds no state that the log does not."""

    async def drive(self, agent: AgentSpec, run: Run[object], input: object) -> object:
        """Do the task; what it returns is the run's result."""
        ...


async def invoke(attempt: Attempt, root: Scope, harness: Harness) -> object:
    """The agent's function, from its beginning, in the task that owns the root scope."""
    current.set(root)
    agent, started = attempt.agent, attempt.fold.started
    run: Run[object] = Run(attempt, attempt.kit.deps, started.version if started else agent.version)
    running.set(run)
    try:
        given = agent.input.decode(attempt.fold.input or "null", where=f"the input of run {run.id}")
    except UndecodableEntry as error:
        attempt.halt(Stop("diverged", f"the log has an input that this agent does not take: {error}"))
        raise Unwind("diverged") from error
    return await harness.drive(agent, run, given)


class Drive:
    """One claimed run on this worker."""

    def __init__(
        self, kit: Kit, keeper: Keeper, owner: Owner, harness: Harness, agent: AgentSpec, claimed: Claimed,
        asked_at: float, max_lapses: int,
    ) -> None:  # fmt: skip
        self.kit, self.keeper, self.agent, self.claimed = kit, keeper, agent, claimed
        self._harness, self._owner, self._max_lapses = harness, owner, max_lapses
        self.grip = Grip(claimed.authority, keeper.safe_until(asked_at), kit.clock, asyncio.get_running_loop())
        self.attempt: Attempt | None = None
        self.losses = Losses(kit.store, kit.clock, owner)
        self._journal: Journal | None = None
        self._drain: Stop | None = None
        self._pausing: tuple[Request, tuple[Message, ...]] | None = None

    def drain(self) -> None:
        """Stop as soon as the calls in flight have reached their record, and give the run back."""
        self._drain = Stop("drain")
        if self.attempt is not None:
            self.attempt.halt(self._drain)

    async def run(self) -> Verdict:
        """From the claim to the end of the attempt. Never raises for what user code does."""
        self.keeper.hold(self.grip)
        verdict: Verdict = "lost"
        try:
            verdict = await self._run()
        except Unwind:
            pass
        finally:
            self.keeper.drop(self.grip)
            if self._journal is not None:
                self.losses.end(self._journal, lost=verdict == "lost")
        if verdict == "lost" and self._journal is not None:
            await self._journal.examine()
        return verdict

    async def _run(self) -> Verdict:
        row, lease_ms = self.claimed.row, int(self.kit.lease_s * 1000)
        await self._let_others_speak()
        key = await self._patiently(lambda: self.kit.store.key(row.tenant))
        recorded, unread = await self._read(row)
        try:
            entries = _given(recorded)
            _check_chain(key, row, entries)
            state, unreadable = fold(entries), ""
        except DataError as error:
            state, unreadable = Fold(), str(error)
        journal = Journal(self.kit.store, self._owner, lease_ms, self.kit.clock, self.kit.time, self.grip, row, state)
        self._journal = journal
        journal.examine = lambda: self._examine(journal)
        if await self.losses.begin(journal):
            return "blocked"
        if unreadable:
            return await self._block(journal, "undecodable", unreadable, Divergence(self.kit.code, unreadable))
        # Once: whoever tries again does not know what the first try has taken.
        first = [_given(unread)]
        news = await self._patiently(lambda: inbox.take(journal, read=first.pop() if first else None))
        if (over := await self._is_over(journal)) is not None:
            return over
        if row.lapses >= self._max_lapses and not news.progress:
            detail = f"{row.lapses} leases in a row lapsed without a call getting its outcome"
            stuck = await self._patiently(lambda: self.kit.store.workers(within_ms=_DAY_MS, now=self.kit.clock.now()))
            if names := ", ".join(one.owner for one in stuck if one.stalled_by == row.id):
                detail += f"; its code has stopped the event loop of {names}"
            return await self._block(journal, "poison", detail)
        await self._recover(journal)
        if news.pause is not None:
            return await self._pause(journal, news.pause)
        attempt = self.attempt = Attempt(self.kit, journal, key, self.agent)
        journal.seam = attempt
        if self.claimed.why == "takeover":
            attempt.streamed.abandoned()
        self.grip.on_lost = lambda: self._lost(attempt)
        self.grip.on_unread = lambda: self._look_into_inbox(attempt)
        if self.grip.has_unread:
            self._look_into_inbox(attempt)
        if self._drain is not None:
            attempt.halt(self._drain)
        try:
            return await self._live(attempt)
        finally:
            await self._unload(attempt)

    async def _read(self, row: RunRow) -> tuple[list[Entry] | BaseException, list[Message] | BaseException]:
        """What is recorded, and what has come in: asked for at once; neither's error hides the other."""
        return await asyncio.gather(
            self._patiently(lambda: self.kit.store.window(row.tenant, row.id)),
            self._patiently(lambda: self.kit.store.unread(row.tenant, row.id)),
            return_exceptions=True,
        )

    async def _let_others_speak(self) -> None:
        """Where another database has begun to answer, whoever saw this run's lost entries gets the time to say so."""
        while (wait := self.keeper.settling_s()) > 0 and self._drain is None:
            await self.kit.clock.sleep(min(wait, 1.0))
        await self.grip.ensure()

    async def _examine(self, journal: Journal) -> None:
        row = journal.row
        await self.losses.examine(row.tenant, row.id, journal.memory)

    def _lost(self, attempt: Attempt) -> None:
        """Whether entries are lost is found out at once: calls in flight may take long to end."""
        attempt.halt(Stop("lost"))
        task = asyncio.ensure_future(self._examine(attempt.journal))
        attempt.helpers.add(task)
        task.add_done_callback(attempt.helpers.discard)

    async def _recover(self, journal: Journal) -> None:
        """Doubt what an earlier attempt may have sent.

        What the other side dedupes is sent again where replay meets it.
        """
        lost = "its worker was lost between the intent and the record"
        now = self.kit.time.now()
        items = doubts(journal.fold, now, lost, lost=True, concerns=lambda sent: sent.effect != "idempotent")
        for item in items:
            if isinstance(item.fact, kinds.InDoubt):
                watch(self.kit, item.fact.operation, item.fact.not_before)
        if items:
            await journal.append(*items)

    async def _is_over(self, journal: Journal) -> Verdict | None:
        """End a run whose grace is over, or that has lapsed too often while it was being cancelled; record that the
        deadline of another has passed.
        """
        now, row, grace_ms = self.kit.time.now(), journal.row, int(self.kit.grace_s * 1000)
        if row.deadline_at is not None and now >= row.deadline_at and journal.fold.cancelling is None:
            await journal.append(made=lambda: late(journal, grace_ms))
        asked = journal.fold.cancelling
        if asked is None or (now < asked.grace_until and row.lapses < self._max_lapses):
            return None
        fact, change = end_of(journal.fold)
        left = doubts(journal.fold, now, "the run was cancelled", lost=True, ended=True)
        await journal.append(*left, Item(fact), also=Also(change=change))
        return "ended"

    async def _pause(self, journal: Journal, asked: tuple[Request, tuple[Message, ...]]) -> Verdict:
        """The append that pauses the run takes all requests for it."""
        request, messages = asked
        fact = kinds.Paused(who=request.who, why=request.why, status="ready")
        also = Also(change=Change("ready", paused=True), taken=tuple(message.id for message in messages))
        await journal.append(Item(fact), also=also)
        return "released"

    # ---- while user code runs

    async def _live(self, attempt: Attempt) -> Verdict:
        root = attempt.open("")
        root.task = asyncio.ensure_future(invoke(attempt, root, self._harness))
        root.task.add_done_callback(lambda _: attempt.changed.set())
        asyncio.get_running_loop().call_soon(attempt.tell)
        attempt.watch_time()
        while True:
            await attempt.changed.wait()
            attempt.changed.clear()
            if attempt.stop is not None:
                if attempt.stop.kind == "over" or attempt.quiet():
                    return await self._stopped(attempt, attempt.stop)
            elif root.task.done():
                return await self._returned(attempt, root)
            elif attempt.quiet():
                return await self._suspended(attempt)

    def _look_into_inbox(self, attempt: Attempt) -> None:
        """One look at a time: who is told meanwhile is told by the next one."""
        self.grip.has_unread = True
        if attempt.listening:
            return

        async def look() -> None:
            try:
                while self.grip.has_unread and not attempt.closed:
                    self.grip.has_unread = False
                    news = await inbox.take(attempt.journal)
                    if news.taken:
                        attempt.wake_all()
                    if news.pause is not None:
                        self._pausing = news.pause
                        attempt.halt(Stop("pause"))
            except (Unwind, StoreError) as error:
                log.debug("run %s: its inbox is read later: %s", attempt.journal.row.id, error)
            finally:
                attempt.listening = False
                attempt.changed.set()

        attempt.listening = True
        task = asyncio.ensure_future(look())
        attempt.helpers.add(task)
        task.add_done_callback(attempt.helpers.discard)

    # ---- the ends

    async def _returned(self, attempt: Attempt, root: Scope) -> Verdict:
        assert root.task is not None
        try:
            attempt.leave(root)
        except Diverged as diverged:
            return await self._stopped(attempt, Stop("diverged", str(diverged), diverged))
        error = (
            root.task.exception() if not root.task.cancelled() else asyncio.CancelledError("the agent cancelled itself")
        )
        if attempt.fold.cancelling is not None:
            told = None if isinstance(error, asyncio.CancelledError) else error
            return await self._cancelled(attempt, self._written(told))
        doubt = self._doubt(attempt)
        if doubt is not None:
            return await self._close(attempt, self._blocked(*doubt))
        if error is None and attempt.unawaited:
            forgotten = ", ".join(attempt.unawaited.values())
            error = Refused(what=forgotten, why="the call was made but never awaited, so it was never done")
        if error is None:
            try:
                codec, where = self.agent.result, f"the result of {self.agent.name}"
                text = failures.clean(self.kit.scrubber, codec, codec.encode(root.task.result(), where=where), where)
                return await self._end(attempt, "succeeded", payload=text)
            except Exception as refused:  # noqa: BLE001 - validators of a user's types may raise anything
                error = refused
        return await self._end(attempt, "failed", error=error)

    def _doubt(self, attempt: Attempt) -> tuple[Block, str] | None:
        """A run never ends well, or by its own failure, while an operation of it is in doubt."""
        if attempt.fold.duplicate:
            return "duplicate effect", f"operation {attempt.fold.duplicate} may have acted twice"
        if attempt.fold.lost:
            return "entries lost", attempt.fold.lost
        unknown = attempt.fold.in_doubt(orphans=True)
        if unknown:
            listed = ", ".join(f"{call.sent.id} {call.shown}" for call in unknown if call.sent)
            return "operation in doubt", f"the agent has ended, but it is not known whether these happened: {listed}"
        return None

    async def _suspended(self, attempt: Attempt) -> Verdict:
        parked = [scope.parked for scope in attempt.scopes.values() if scope.parked is not None]
        waiting = [one for one in parked if one.until is not None or one.message]
        if not waiting and attempt.fold.cancelling is not None:
            waiting = parked  # nobody will decide in time: it ends when its grace does
        if waiting:
            first = min(waiting, key=lambda one: one.until or _NEVER)
            wake_at = _earliest(first.until, attempt.deadline, attempt.grace_until)
            fact = kinds.Suspended(why=first.why, wake_at=wake_at or 0)
            # A branch that only a person can let go on is not hidden by another's timer.
            person = next((one for one in parked if one.block is not None), None)
            reason, detail = (first.why, "") if person is None else (person.block or "", person.detail)
            change = Change("waiting", reason=reason, detail=detail, wake_at=wake_at)
            return await self._close(attempt, (fact, change, None))
        return await self._close(attempt, self._blocked(*_first_block(parked)))

    async def _stopped(self, attempt: Attempt, stop: Stop) -> Verdict:
        if stop.kind == "lost":
            attempt.closed = "lease lost"
            return "lost"
        if stop.kind == "drain":
            released = kinds.Released(why="the worker is being drained")
            return await self._close(attempt, (released, Change("ready"), None))
        if attempt.fold.cancelling is not None:
            # What does not fit its log cannot clean up.
            told = kinds.ErrorRecord(type="Diverged", message=stop.report) if stop.kind == "diverged" else None
            return await self._cancelled(attempt, told or self._written(stop.fault))
        if stop.kind == "pause":
            assert self._pausing is not None
            attempt.closed = "paused"
            return await self._pause(attempt.journal, self._pausing)
        if stop.kind == "diverged":
            return await self._diverged(attempt, stop)
        doubt = self._doubt(attempt)
        if doubt is not None:
            return await self._close(attempt, self._blocked(*doubt))
        return await self._end(attempt, "failed", error=stop.fault)

    async def _diverged(self, attempt: Attempt, stop: Stop) -> Verdict:
        """What a rule of the agent adopts is tried again at once; anything else is for other builds, and for people."""
        if (item := by_rule(self.agent, attempt.fold, stop.fault)) is not None:
            log.info("run %s: a rule of %s adopts a difference: %s", attempt.journal.row.id, self.agent, stop.report)
            released = kinds.Released(why=f"a rule of {who(self.agent.name, self.agent.version)} adopts what differs")
            return await self._close(attempt, (released, Change("ready"), None), adopted=(item,))
        status: Status = "ready" if await self._others_may_continue(attempt) else "blocked"
        fact = kinds.Blocked(
            reason="diverged", detail=stop.report, code=self.kit.code, difference=difference(stop.fault)
        )  # fmt: skip
        change = Change(status, reason="diverged", detail=stop.report)
        return await self._close(attempt, (fact, change, Divergence(self.kit.code, stop.report)))

    def _written(self, error: BaseException | None) -> kinds.ErrorRecord | None:
        return failures.record(error, self.kit.scrubber) if error is not None else None

    async def _cancelled(self, attempt: Attempt, error: kinds.ErrorRecord | None) -> Verdict:
        """The end of a run that was told to end, whatever its code has made of that; an error of its clean-up is kept.

        What is still in flight finds the log closed, and leaves what it learns as evidence.
        """
        fact, change = end_of(attempt.fold, error)
        attempt.closed = change.reason
        now, why = self.kit.time.now(), "the run was cancelled"
        await attempt.journal.append(
            also=Also(change=change),
            made=lambda: [*doubts(attempt.fold, now, why, lost=True, ended=True), Item(fact)],
        )
        return "ended"

    async def _others_may_continue(self, attempt: Attempt) -> bool:
        """Whether a live worker serves the agent, as the run's pin asks, with a build that has not diverged on it."""
        row, store = attempt.journal.row, self.kit.store
        try:
            tried = {one.code for one in await store.divergences(row.tenant, row.id)} | {self.kit.code}
            alive = await store.workers(within_ms=int(self.kit.lease_s * 2000), now=self.kit.clock.now())
        except StoreError:
            return False
        return any(worker.fits(row) and worker.serves[row.agent] not in tried for worker in alive)

    def _blocked(self, reason: Block, detail: str) -> End:
        return kinds.Blocked(reason=reason, detail=detail), Change("blocked", reason=reason, detail=detail), None

    async def _end(
        self, attempt: Attempt, status: Literal["succeeded", "failed"], *, payload: str | None = None,
        error: BaseException | None = None,
    ) -> Verdict:  # fmt: skip
        written = self._written(error)
        if error is not None:
            log.info("run %s failed", attempt.journal.row.id, exc_info=error)
        detail = f"{written.type}: {written.message}" if written else ""
        if written is not None and written.at:
            detail += f" (at {written.at})"
        if status == "failed" and self.agent.on_failure == "rollback":
            # First, so that it is there whatever becomes of this worker; it does nothing unless the run has failed.
            row = attempt.journal.row
            await self._patiently(lambda: undoing.after_failure(self.kit.store, self.kit.clock, row, detail))
        fact = kinds.Ended(status=status, error=written)
        return await self._close(attempt, (fact, Change(status, detail=detail), None), payload)

    async def _close(
        self, attempt: Attempt, end: End, payload: str | None = None, *, adopted: Iterable[Item] = ()
    ) -> Verdict:  # fmt: skip
        """The append that ends the attempt. From here on the seam is closed, whatever user code does."""
        fact, change, divergence = end
        attempt.closed = change.reason or change.status
        assert may_follow("running", change.status)
        # An ended or blocked run keeps no operation pending: what may have been sent is in doubt, for all to see.
        left = list(adopted)
        if change.status not in _GO_ON:
            left += doubts(attempt.fold, self.kit.time.now(), "the attempt has ended", lost=True)
        also = Also(change=change, divergence=divergence)
        await attempt.journal.append(*left, Item(fact, payload=payload), also=also)
        return _VERDICTS.get(change.status, "ended")

    async def _block(
        self, journal: Journal, reason: Block, detail: str, divergence: Divergence | None = None
    ) -> Verdict:
        fact, change, _ = self._blocked(reason, detail)
        left = doubts(journal.fold, self.kit.time.now(), "the run is blocked", lost=True)
        await journal.append(*left, Item(fact), also=Also(change=change, divergence=divergence))
        return "blocked"

    async def _unload(self, attempt: Attempt) -> None:
        """Unwind user code.

        What does not end within `unload_s` is cancelled, then left behind with a word in the log.
        """
        attempt.closed = attempt.closed or "the attempt is over"
        for alarm in attempt.alarms:
            alarm.cancel()
        attempt.streamed.close()
        for scope in attempt.scopes.values():
            if scope.waiter is not None and not scope.waiter.done():
                scope.waiter.set_exception(Unwind(attempt.closed))
        tasks = {scope.task for scope in attempt.scopes.values() if scope.task is not None} | attempt.helpers
        left = await _ended(tasks, self.kit.unload_s)
        for task in left:
            task.cancel()
        for task in await _ended(left, self.kit.unload_s):
            log.error("run %s: its code does not end after it was unwound; left behind: %r", self.claimed.row.id, task)

    async def _patiently(self, ask: Ask[T]) -> T:
        pause = 0.05
        while True:
            try:
                return await ask()
            except StoreError as error:
                log.warning("run %s: %s", self.claimed.row.id, error)
                await self.kit.clock.sleep(pause)
                pause = min(2 * pause, 1.0)
                await self.grip.ensure()


def _given(found: T | BaseException) -> T:
    if isinstance(found, BaseException):
        raise found
    return found


def _check_chain(key: bytes, row: RunRow, entries: list[Entry]) -> None:
    """What is replayed is what was written: raises ChainBroken. The prologue and the turn are two stretches of log."""
    window = next((place for place, entry in enumerate(entries) if entry.seq != place), len(entries))
    head = verify(key, row.id, entries[:window])
    if window < len(entries):
        # What the turn's first entry follows is not loaded; that entry is held by the digests of those after it.
        head = verify(key, row.id, entries[window + 1 :], entries[window].digest)
        head = head if window + 1 < len(entries) else Head(entries[window].seq + 1, entries[window].digest)
    if head != row.head:
        raise ChainBroken(run=row.id, seq=row.head.seq - 1)


def _earliest(*moments: int | None) -> int | None:
    return min((one for one in moments if one is not None), default=None)


def _first_block(parked: Iterable[Parked]) -> tuple[Block, str]:
    for one in parked:
        if one.block is not None:
            return one.block, one.detail
    raise OutliveError("a run with nothing to wait for was about to be unloaded")


async def _ended(tasks: Iterable[asyncio.Task[object]], within_s: float) -> set[asyncio.Task[object]]:
    """Wait for tasks; their errors are read, so that nobody complains about them. Returns those that did not end."""
    waiting = set(tasks)
    if not waiting:
        return waiting
    done, left = await asyncio.wait(waiting, timeout=within_s)
    for task in done:
        if not task.cancelled():
            task.exception()
    return left
