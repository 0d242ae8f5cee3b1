"""The writer of one run's log, on the worker that drives it.

Appends go out one at a time in the order in which they were asked for; what is buffered (recorded values, the opening
of scopes) goes with the next one, which is always before anyone outside could see what follows from it. The fold is
kept true with every append, so that what the engine knows live is what a new worker would read.

The outcome of a commit is always learned: an append goes on when its caller is cancelled, an error that means *nothing
was written* is tried again while the run is ours, and an unknown outcome is settled by claiming the run again (the new
epoch refuses the lost append if it is still on its way) and reading the tail.
"""

from __future__ import annotations

import asyncio
import json
import logging
import types
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from outlive.engine.authority import DatabaseTime, Grip, margin_s
from outlive.engine.callables import until_done
from outlive.engine.marks import Moment, marks
from outlive.engine.notices import Fact, noticed
from outlive.log import kinds
from outlive.log.entry import BLOB_BYTES, Draft, Entry
from outlive.log.fold import Arrival, Call, Fold, moved, step, unfold
from outlive.model.approval import ApprovalRow, Use
from outlive.model.business import KeyMark
from outlive.model.clock import Clock
from outlive.model.errors import (
    ApprovalRefused,
    CommitUnknown,
    KeyTaken,
    LeaseLost,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from outlive.model.ids import OperationId, Owner, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import CANCELLING, Authority, Head, RunRow
from outlive.model.signals import Unwind
from outlive.store.port import Append, Change, Claimed, Divergence, Store
from outlive.store.within import Transaction

log = logging.getLogger("outlive.worker")


@dataclass(frozen=True, slots=True)
class Item:
    """A fact with its place in the run, not yet written."""

    fact: kinds.Fact
    scope: str = ""
    key: str = ""
    payload: str | None = None
    arrival: Arrival | None = None
    """What wakes a wait. The number of its entry is known for good only when this one is written."""


@dataclass(frozen=True, slots=True)
class Also:
    """What one append does beside adding entries."""

    change: Change | None = None
    rows: tuple[OperationRow, ...] = ()
    taken: tuple[int, ...] = ()
    divergence: Divergence | None = None
    progress: bool = False
    forgive: bool = False
    asks: tuple[ApprovalRow, ...] = ()
    use: Use | None = None
    take: KeyMark | None = None
    marks: tuple[KeyMark, ...] = ()


NOTHING = Also()


# Characters of a payload that is not worth the trouble of dropping.
_SMALL = 2048


@dataclass(frozen=True, slots=True)
class Kept:
    """What one acknowledged append brought: entries from `first` up to `end`, and the operations that it changed."""

    first: int
    end: Head
    drafts: tuple[Draft, ...] = ()
    operations: tuple[OperationRow, ...] = ()


@dataclass(slots=True)
class Memory:
    """What this worker has seen acknowledged of a log, so that it notices when the database has less than that.

    Appends, the last ones only: of a longer stretch that was lost it is known that it was, but not all that was in it.
    """

    kept: deque[Kept] = field(default_factory=lambda: deque(maxlen=64))
    examined: asyncio.Task[bool] | None = None

    @property
    def end(self) -> Head:
        """Where the log ended, last time."""
        return self.kept[-1].end

    def keep(self, append: Append, end: Head) -> None:
        """An append was acknowledged. Large payloads are dropped, but for the outcomes of operations."""
        drafts = append.drafts
        if any(draft.payload is not None and len(draft.payload) > _SMALL for draft in drafts):
            drafts = tuple(_brief(draft) for draft in drafts)
        self.kept.append(Kept(append.head.seq, end, drafts, append.operations))


def _brief(draft: Draft) -> Draft:
    if draft.payload is None or (draft.kind == kinds.Outcome.KIND and len(draft.payload) <= BLOB_BYTES):
        return draft
    return replace(draft, payload=None)


async def _nothing_to_examine() -> None:
    pass


class Seam:
    """Who drives the run, as its log is written: asked and told at the moment at which entries get their place."""

    def admit(self, items: Sequence[Item]) -> None:
        """Raise CancelledError for what may not be recorded any more."""

    def in_call(self, key: str) -> bool:
        """Whether the root scope may be in the call of this key: where nobody drives the run, it may."""
        return True

    def in_flight(self, operation: str) -> bool:
        """Whether the call of an operation is being made here, and has its record still to come."""
        return False

    def cancelling(self) -> None:
        """The run's cancellation has just got its place in the log."""

    def marked(self) -> None:
        """A business key that the run has may have changed."""


Made = Callable[[], Iterable[Item]]


class Journal:
    """Appends to one log and folds what it appended."""

    def __init__(
        self, store: Store, owner: Owner, lease_ms: int, clock: Clock, time: DatabaseTime, grip: Grip, row: RunRow,
        fold: Fold,
    ) -> None:  # fmt: skip
        self.store, self.grip, self.row, self.fold, self.time = store, grip, row, fold, time
        self.head = row.head
        self.memory = Memory()
        self.memory.kept.append(Kept(row.head.seq - 1, row.head))
        self.examine: Callable[[], Awaitable[None]] = _nothing_to_examine
        self.seam = Seam()
        self._owner, self._lease_ms, self._clock = owner, lease_ms, clock
        self._buffer: list[Item] = []
        self._lock = asyncio.Lock()
        self.reading = asyncio.Lock()
        """Held from reading the inbox to the append that takes it: no message is taken twice."""

    def buffer(self, item: Item) -> None:
        """Write it with the next append. Only for facts that nobody outside can see before."""
        self._buffer.append(item)

    async def append(self, *items: Item, also: Also = NOTHING, made: Made | None = None) -> None:
        """Commit the items, and before them what was buffered. Raises Unwind when the run is not ours any more.

        `made` gives further items, at the moment when nothing else of this run is on its way. A cancellation of the
        caller is held back until the outcome is known, and raised then.
        """
        if self._lock.locked() or self.grip.lost or self.grip.remaining() < 0 or self._splits(items):
            await _shielded(self._append(items, also, made))
            return
        async with self._lock:
            # The common case needs no task: nothing is waited for but the commit, and that is certain.
            append = self._prepare(items, also, made)
            try:
                await self._send(append)
            except (LeaseLost, StoreError) as error:
                await _shielded(self._commit(append, error))
            except asyncio.CancelledError:
                await _shielded(self._commit(append, CommitUnknown(store=self.store.name)))
                raise
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            await _pause()

    async def append_using(self, *items: Item, also: Also) -> None:
        """As `append`, of facts about calls, which depend on an approval or a business key.

        Raises ApprovalRefused or KeyTaken with nothing written, and the fold as it was.
        """
        await _shielded(self._append_using(items, also))

    async def _append_using(self, items: Sequence[Item], also: Also) -> None:
        async with self._lock:
            await self.grip.ensure()
            buffered = list(self._buffer)
            before = [_copy(self.fold.keys.get(item.key)) for item in items]
            append = self._prepare(items, also)
            try:
                await self._commit(append)
            except (ApprovalRefused, KeyTaken):
                self._buffer[:0] = buffered
                for item, was in zip(items, before, strict=True):
                    unfold(self.fold, item.key, was)
                raise

    async def append_within(self, transaction: Transaction, item: Item, *, also: Also) -> bool:
        """Commit the item together with what the transaction has written; the caller holds `exclusive`.

        False when the commit was lost and has left nothing behind. Raises StoreError when nothing was written.
        """
        buffered, before = list(self._buffer), _copy(self.fold.keys.get(item.key))
        append = self._prepare((item,), also)
        committed = False
        try:
            self.head = await transaction.append(append, now=self._clock.now())
            self._stored(append, self.head)
            committed = True
        except LeaseLost as lost:
            self.grip.lose()
            raise Unwind("lease lost") from lost
        except CommitUnknown:
            committed = await self._settle_unknown(append) is None
        finally:
            if not committed:
                self._buffer[:0] = buffered
                unfold(self.fold, item.key, before)
        return committed

    def exclusive(self) -> asyncio.Lock:
        """Held while a transaction of the user's is open: nothing else of this run is appended meanwhile."""
        return self._lock

    async def flush(self) -> None:
        """Commit what is buffered, if anything: before somebody outside could see what follows from it."""
        if self._buffer:
            await self.append()

    async def _append(self, items: Sequence[Item], also: Also, made: Made | None) -> None:
        async with self._lock:
            await self.grip.ensure()
            if self._splits(items):
                self.seam.admit(items)
                await self._commit(self._prepare((), NOTHING))
            await self._commit(self._prepare(items, also, made))

    def _splits(self, items: Sequence[Item]) -> bool:
        """Whether it takes two: what was recorded before a turn belongs to the window before, which the turn ends."""
        return bool(self._buffer) and any(isinstance(item.fact, kinds.Turn) for item in items)

    def _prepare(self, items: Sequence[Item], also: Also, made: Made | None = None) -> Append:
        self.seam.admit(items)
        everything = [_settled(item) for one in (*self._buffer, *items) for item in self._with_mail(one)]
        self._buffer.clear()
        at = self.time.now()
        drafts: list[Draft] = []
        facts: list[Fact] = []
        touched: dict[str, Call] = {}
        turn = cancelling = False
        for place, item in enumerate(_lazily(everything, made), start=self.head.seq):
            drafts.append(kinds.draft(item.fact, at=at, scope=item.scope, key=item.key, payload=item.payload))
            step(self.fold, place, item.fact, item.scope, item.key, item.payload)
            facts.append((item.fact, item.payload))
            turn = turn or isinstance(item.fact, kinds.Turn)
            cancelling = cancelling or isinstance(item.fact, kinds.Cancelling)
            operation = getattr(item.fact, "operation", None)
            if operation is not None and (call := self.fold.sent(operation)) is not None:
                touched[operation] = call
        if cancelling:
            self.seam.cancelling()
        known = {row.id for row in also.rows}
        authority = self.grip.authority
        change = also.change.status if also.change is not None else None
        rows = [
            record_of(call, authority.tenant, authority.run, authority.epoch, at)
            for call in touched.values()
            if call.sent and call.sent.id not in known
        ]
        reason = also.change.reason if also.change is not None else ""
        moment = Moment(authority.run, self.fold, facts, change, reason, self.row.ended)
        return Append(
            self.grip.authority, self.head, tuple(drafts), change=self._marked(also.change),
            operations=(*rows, *also.rows), taken=also.taken, divergence=also.divergence, progress=also.progress,
            turn=turn, forgive=also.forgive, asks=also.asks, use=also.use, take=also.take,
            marks=(*also.marks, *marks(moment, touched.values(), also.rows, also.take)),
            notices=noticed(facts, self.fold, change, also.rows, self._clock),
        )  # fmt: skip

    def _marked(self, change: Change | None) -> Change | None:
        """Whoever gives a run back that is being cancelled says so in its row, so that it is found by anyone."""
        if self.fold.cancelling is None or change is None or change.status not in ("ready", "waiting"):
            return change
        detail = change.detail if change.reason in ("", CANCELLING) else f"{change.reason} {change.detail}".strip()
        return replace(change, reason=CANCELLING, detail=detail)

    def _with_mail(self, item: Item) -> Iterator[Item]:
        """A turn takes along what nobody has received. Found out as it is written: until then more may arrive."""
        yield item
        if isinstance(item.fact, kinds.Turn):
            for topic, mail in self.fold.mail.items():
                for one in mail:
                    carried = kinds.Arrived(topic=topic, sender_key=one.sender_key, again=one.seq)
                    yield Item(carried, payload=one.payload)

    async def _send(self, append: Append) -> None:
        self.head = await self.store.append(append, now=self._clock.now())
        self._stored(append, self.head)

    def _stored(self, append: Append, end: Head) -> None:
        self.memory.keep(append, end)
        if append.marks:
            self.seam.marked()

    async def _commit(self, append: Append, error: Exception | None = None) -> None:
        """Send until the outcome is known; with `error`, what the first time came to."""
        pause = 0.05
        while True:
            if error is None:
                try:
                    return await self._send(append)
                except (LeaseLost, StoreError) as failure:
                    error = failure
            if isinstance(error, LeaseLost):
                self.grip.lose()
                raise Unwind("lease lost") from error
            if isinstance(error, CommitUnknown):
                again = await self._settle_unknown(append)
                if again is None:
                    return None
                append = again
            elif isinstance(error, StoreBusy | StoreFull | StoreUnavailable):
                log.warning("run %s: nothing was written, trying again: %s", self.row.id, error)
                await self._clock.sleep(pause)
                pause = min(pause * 2, 1.0)
                await self.grip.ensure()
            else:
                raise error
            error = None

    async def _settle_unknown(self, append: Append) -> Append | None:
        """None when the append is in the log after all; else the same append under the new epoch, after the new head.

        An append that released the run and did commit took our token with it: then the claim finds nothing of ours.
        Raises Unwind for a log that does not have what was acknowledged before: nothing may be added to it.
        """
        claimed = await self._claim_again()
        before, tail = await self._tail(append)
        if append.head.seq and (before is None or before.digest != append.head.digest):
            self.grip.lose()
            raise Unwind("the log has lost entries")
        self.head = claimed.row.head
        if there := _holds(tail, append.drafts):
            self._stored(append, Head(tail[-1].seq + 1, tail[-1].digest) if tail else append.head)
        self.memory.kept.append(Kept(self.head.seq - 1, self.head))
        return None if there else self._moved(append, claimed.authority)

    def _moved(self, append: Append, authority: Authority) -> Append:
        """The same append after the present head: what was folded in with it has another place by that."""
        since, by = append.head.seq, self.head.seq - append.head.seq
        moved(self.fold, since, by)
        rows = tuple(replace(row, seq=row.seq + by) if row.seq >= since else row for row in append.operations)
        return replace(append, authority=authority, head=self.head, operations=rows)

    async def _claim_again(self) -> Claimed:
        """Until it is known that we have the run, or that we do not.

        Claims whose outcome is unknown too may have given it a new authority, which is ours: a renewal that does not
        know the old one is then no loss, and waiting for one would be in vain.
        """
        ours = [self.grip.authority]
        self.grip.settling = True
        try:
            while True:
                self.grip.expect()
                token, asked = self._clock.token(), ours[0]
                try:
                    # The oldest first: asking for it waits for whatever of ours is still on its way.
                    for asked in tuple(ours):
                        if (claimed := await self._once_more(asked, token)) is not None:
                            return claimed
                    self.grip.lose()
                except StoreError as error:
                    log.warning("run %s: %s", self.row.id, error)
                    if isinstance(error, CommitUnknown):
                        ours.append(replace(asked, epoch=asked.epoch + 1, token=token))
                    await self._clock.sleep(0.1)
        finally:
            self.grip.settling = False

    async def _once_more(self, authority: Authority, token: str) -> Claimed | None:
        asked_at, lease_s = self._clock.boottime(), self._lease_ms / 1000
        claimed = await self.store.again(
            authority, owner=self._owner, lease_ms=self._lease_ms, token=token, now=self._clock.now()
        )
        if claimed is not None:
            self.grip.moved(claimed.authority, asked_at + lease_s - margin_s(lease_s))
        return claimed

    async def _tail(self, append: Append) -> tuple[Entry | None, list[Entry]]:
        """The entry before the append's, and as many after it as the append has."""
        last = append.head.seq - 1
        while True:
            try:
                found = await self.store.entries(
                    self.row.tenant, self.row.id, after=last - 1, limit=len(append.drafts) + 1
                )
                before = found[0] if found and found[0].seq == last else None
                return before, [entry for entry in found if entry.seq > last]
            except StoreError as error:
                log.warning("run %s: %s", self.row.id, error)
                await self._clock.sleep(0.2)
                await self.grip.ensure()


def _copy(call: Call | None) -> Call | None:
    return call and replace(call, sent=call.sent and replace(call.sent, notes={**call.sent.notes}))


def _lazily(items: Sequence[Item], made: Made | None) -> Iterator[Item]:
    """What is made is made when what comes before it has its place."""
    yield from items
    if made is not None:
        yield from made()


async def _shielded(work: Coroutine[object, object, None]) -> None:
    """See the work through; a cancellation of the caller goes on when it has ended."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await until_done(task)
        raise


@types.coroutine
def _pause() -> Generator[None, None, None]:
    """Let a cancellation that was held back be delivered here."""
    yield


def _settled(item: Item) -> Item:
    if item.arrival is None or not isinstance(item.fact, kinds.Woken):
        return item
    return replace(item, fact=replace(item.fact, arrival=item.arrival.seq))


def _holds(tail: Sequence[Entry], drafts: Sequence[Draft]) -> bool:
    """Whether the log has exactly these drafts where they were meant to go."""
    wrote = [(e.kind, e.version, e.at, e.scope, e.key, e.body) for e in tail]
    meant = [(d.kind, d.version, d.at, d.scope, d.key, d.body) for d in drafts]
    return wrote == meant


def record_of(call: Call, tenant: Tenant, run: RunId, epoch: int, at: int) -> OperationRow:
    """The operation record that an append of that epoch and time writes, of a call that has one."""
    sent = call.sent
    assert sent is not None
    return OperationRow(
        tenant, run, OperationId(sent.id), call.key, call.name, sent.effect, sent.key, call.digest, sent.arguments,
        sent.status, call.attempt, epoch, sent.first_sent_at or at, at,
        not_before=sent.not_before, outcome=brief(call.payload) if sent.status == "succeeded" else None,
        error=f"{call.error.type}: {call.error.message}" if call.error and sent.status != "succeeded" else "",
        how=sent.how, notes=dict(sent.notes), duplicates=sent.duplicates, seq=call.seq, approval=sent.approval,
        executed=sent.executed, compensates=OperationId(sent.compensates), business_key=sent.business_key,
        shared_run=RunId(sent.shared[0]), shared_operation=OperationId(sent.shared[1]),
    )  # fmt: skip


def brief(payload: str | None) -> str | None:
    """A result as the operation record holds it: one that is large stays in its blob, and its beginning tells it."""
    if payload is None or len(payload) <= BLOB_BYTES:
        return payload
    return json.dumps(f"{payload[:1000]}… ({len(payload)} characters)")
