"""Control claims: what can be done to a run that nobody drives, by any process that has the store, without agent code.

A control claim bumps epoch and token whatever the lease says, appends its entries and releases, so that the log has
one writer all the same. An owner with a live lease is asked through the inbox instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal, cast

from outlive.engine import failures, inbox, undoing
from outlive.engine.adoption import Acceptance, adopt
from outlive.engine.authority import DatabaseTime, Grip, margin_s
from outlive.engine.cancelling import Request, answers, asks_to_end, end_of, is_pause, terminated, written
from outlive.engine.doubt import doubts
from outlive.engine.journal import Also, Item, Journal
from outlive.log import kinds
from outlive.log.fold import Fold, fold
from outlive.model.clock import Clock
from outlive.model.errors import (
    LeaseLost,
    NotInDoubt,
    TooEarly,
    UndecodableEntry,
    UnknownOperation,
    UnknownRun,
    WrongState,
)
from outlive.model.ids import Owner, RunId, Tenant
from outlive.model.operation import SETTLED, UNDER_WAY, OperationRow
from outlive.model.run import ENDED, STATUSES, RunRow, Status
from outlive.model.signals import Unwind
from outlive.store.port import Change, Message, Store

_LEASE_MS = 30_000
_TRIES = 5
_OPEN: frozenset[Status] = frozenset(STATUSES) - ENDED


@dataclass(frozen=True, slots=True)
class Control:
    """A process that may act on runs without driving them."""

    store: Store
    clock: Clock
    owner: Owner

    async def resolve(self, row: RunRow, operation: OperationRow, decision: inbox.Decision) -> None:
        """Record a person's decision about an operation in doubt.

        Works on blocked, waiting and ended runs at once; an owner with a live lease is told and takes it in within a
        renewal. Raises NotInDoubt, and TooEarly for a *did not happen* that cannot be known yet.
        """
        if operation.status not in inbox.decidable(decision.decision):
            raise NotInDoubt(operation=operation.id, status=operation.status)
        now = await self.store.now() if self.clock.now() is None else self.clock.now() or 0
        live = row.status == "running" and row.expires_at is not None and now < row.expires_at
        if operation.status == "pending" and live:
            raise NotInDoubt(operation=operation.id, status="in flight")
        if decision.decision == "did-not-happen" and now < operation.not_before:
            raise TooEarly(operation=operation.id, seconds=(operation.not_before - now) / 1000)
        body, key = inbox.resolution(decision), self.clock.token()
        message = Message(row.tenant, row.id, inbox.RESOLUTION, key, body)
        await self.store.post(message, now=self.clock.now())
        # Whoever was faster in claiming it finds the decision in its inbox.
        with suppress(LeaseLost):
            await self.take_in(row.tenant, row.id)

    async def retry(self, row: RunRow, *, who: str, why: str) -> None:
        """Let a blocked run be tried again: by the same code too, with its look-ups and lapses counted from none.

        Raises WrongState, and LeaseLost when somebody claims the run at this moment; then nothing is recorded.
        """
        # One that diverged is *ready* for other builds; trying again lets this one have it too.
        only: frozenset[Status] = frozenset(("blocked", "ready") if row.reason == "diverged" else ("blocked",))
        async with self._seized(row.tenant, row.id, only=only) as journal:
            if journal is None:
                now = await self.store.run(row.tenant, row.id)
                status = now.status if now is not None else "gone"
                raise WrongState(run=row.id, status=status, wanted="only a blocked run can be retried")
            also = Also(change=Change("ready"), forgive=True)
            await journal.append(Item(kinds.Retried(who=failures.writable(who), why=failures.writable(why))), also=also)

    async def adopt(self, row: RunRow, wish: Acceptance) -> kinds.Adopted:
        """Record what a person accepts of a divergence; every build may have the run again then. Of one that no build
        has run into yet, the run stays as it is.

        Raises WrongState, NotAdoptable, and LeaseLost when somebody claims the run at this moment; then nothing of it
        is recorded.
        """
        _expect_adoptable(row, wish)
        adopt(fold(await self.store.window(row.tenant, row.id)), row.id, wish)  # refused without a claim
        only: frozenset[Status] = frozenset(("blocked", "ready", "waiting"))
        async with self._seized(row.tenant, row.id, only=only) as journal:
            now = journal.row if journal is not None else await self.store.run(row.tenant, row.id) or row
            _expect_adoptable(now, wish)
            if journal is None:
                raise LeaseLost(run=row.id, epoch=row.epoch)
            item = adopt(journal.fold, row.id, wish)
            assert isinstance(item.fact, kinds.Adopted)
            also = Also(change=Change("ready"), forgive=True) if _diverged(now) else Also(change=_as_it_is(now))
            await journal.append(item, also=also)
            return item.fact

    async def cancel(self, row: RunRow, request: Request, *, key: str) -> None:
        """Ask for a run's end. Its owner tells its code, or whoever claims it next; a run that is blocked or paused
        ends at once. An ended one is answered *too late*. The same `key` again changes nothing.
        """
        message = Message(row.tenant, row.id, inbox.CONTROL, key, written(request))
        await self.store.post(message, now=self.clock.now())
        with suppress(LeaseLost):
            await self.take_in(row.tenant, row.id, only=ENDED)
        with suppress(LeaseLost):
            await self.enforce(row.tenant, row.id, only=frozenset(("blocked",)))
        if row.paused_at is not None:
            with suppress(LeaseLost):
                await self.enforce(row.tenant, row.id)

    async def pause(self, row: RunRow, request: Request, *, key: str) -> bool:
        """Let nobody claim the run until it is resumed; True when that is so already.

        A live owner is asked, and pauses it when its calls in flight have reached their record. Raises WrongState for
        an ended run, and for one that is being cancelled.
        """
        for _ in range(_TRIES):
            with suppress(LeaseLost):
                async with self._seized(row.tenant, row.id, only=_OPEN) as journal:
                    if journal is None:
                        break
                    if journal.fold.cancelling is None:
                        await _pause(journal, request)
                        return True
                    also = Also(change=_as_it_is(journal.row))
                    await journal.append(also=also, made=lambda: list(answers(journal, [request])))
                    wanted = "it is being cancelled, too late to pause it"
                    raise WrongState(run=row.id, status=journal.row.status, wanted=wanted)
        now = await self.store.run(row.tenant, row.id)
        if now is None or now.ended:
            status = now.status if now is not None else "gone"
            raise WrongState(run=row.id, status=status, wanted="only a run that has not ended can be paused")
        message = Message(row.tenant, row.id, inbox.CONTROL, key, written(request))
        await self.store.post(message, now=self.clock.now())
        return False

    async def resume(self, row: RunRow, *, who: str, why: str) -> None:
        """Let a paused run go on where it was: it is ready, and comes back to what it waited for.

        Raises WrongState for a run that is not paused, and LeaseLost when somebody else acts on it at this moment.
        """
        if row.paused_at is None or row.ended:
            raise WrongState(run=row.id, status=row.status, wanted="only a paused run can be resumed")
        async with self._seized(row.tenant, row.id, only=_OPEN) as journal:
            if journal is None or journal.row.paused_at is None:
                status = journal.row.status if journal is not None else "running"
                if journal is not None:
                    await journal.append(also=Also(change=_as_it_is(journal.row)))
                raise WrongState(run=row.id, status=status, wanted="only a paused run can be resumed")
            change = _going_on(journal.row)
            fact = kinds.Resumed(
                who=failures.writable(who), why=failures.writable(why),
                status="blocked" if change.status == "blocked" else "ready",
            )  # fmt: skip
            await journal.append(Item(fact), also=Also(change=replace(change, paused=False)))

    async def terminate(self, row: RunRow, *, who: str, why: str) -> None:
        """End a run at once, whoever owns it and whatever it is doing: no code of it cleans up, and the next append of
        a live owner is refused. What may have been sent becomes *unknown*. Raises WrongState for an ended run.
        """
        end = terminated(failures.writable(who), failures.writable(why))
        for left in reversed(range(_TRIES)):
            try:
                async with self._seized(row.tenant, row.id, only=_OPEN, readable=False, live=True) as journal:
                    if journal is None:
                        now = await self.store.run(row.tenant, row.id)
                        status = now.status if now is not None else "gone"
                        wanted = "only a run that has not ended can be terminated"
                        raise WrongState(run=row.id, status=status, wanted=wanted)
                    await self._conclude(journal, end)
                    return
            except LeaseLost:
                if not left:
                    raise

    async def enforce(self, tenant: Tenant, run: RunId, *, only: frozenset[Status] = _OPEN, live: bool = False) -> bool:
        """End a run that was asked to end, without its code; with `live` whoever owns it. False when there is no such
        run. Raises LeaseLost when somebody claims it at this moment.
        """
        async with self._seized(tenant, run, only=only, readable=False, live=live) as journal:
            if journal is None:
                return False
            if journal.fold.cancelling is None and asks_to_end(await inbox.asked(journal)) is None:
                # What is unread stays so: it is still a reason to claim the run.
                await journal.append(also=Also(change=_as_it_is(journal.row)))
                return False
            await self._finish(journal)
            return True

    async def expire(self, tenant: Tenant, run: RunId) -> None:
        """End a run whose deadline has passed and that nobody drives. What may have been sent becomes *unknown*.

        Raises LeaseLost when somebody claims it at this moment.
        """
        async with self._seized(tenant, run, only=_OPEN, readable=False) as journal:
            if journal is not None:
                await self._finish(journal)

    async def _finish(self, journal: Journal) -> None:
        """End a run that was cancelled or has expired. The commit that ends it takes the requests for that: a cancel
        whose row is read is never left without its end.
        """
        left = (await inbox.take(journal, ending=True)).asked
        await self._conclude(journal, end_of(journal.fold, asked=[request for request, _ in left]), left)

    async def _conclude(
        self, journal: Journal, end: tuple[kinds.Ended, Change], asked: Sequence[tuple[Request, Message]] = ()
    ) -> None:
        fact, change = end
        now, row = journal.time.now(), journal.row
        met, taken = [request for request, _ in asked], tuple(message.id for _, message in asked)
        # Of a log that cannot be read, the operation records say what is pending, and what has a business key.
        known = {call.sent.id for call in journal.fold.in_doubt() if call.sent is not None}
        unread = journal.fold.started is None
        rows = tuple(
            replace(one, status="unknown", updated_at=now) if one.status in UNDER_WAY else one
            for one in await self.store.operations(row.tenant, row.id)
            if one.id not in known
            and (one.status in UNDER_WAY or (unread and one.business_key and one.status not in SETTLED))
        )

        def made() -> Iterator[Item]:
            yield from answers(journal, met)
            yield from doubts(journal.fold, now, f"the run was ended: {fact.reason}", lost=True, ended=True)
            yield Item(fact)

        await journal.append(also=Also(change=change, rows=rows, taken=taken), made=lambda: list(made()))

    async def look_after(self, tenant: Tenant, run: RunId) -> None:
        """As `take_in`, of a run that no worker would claim for what it was sent. One that was asked to end does so
        although its log cannot be read.
        """
        try:
            await self.take_in(tenant, run)
        except UndecodableEntry:
            await self.enforce(tenant, run)

    async def stand_in(self, tenant: Tenant, run: RunId) -> None:
        """Do for a run what it was asked for and no worker is there to do: end it, whatever is left of its grace, or
        pause it. Raises LeaseLost when somebody claims it at this moment.
        """
        unserved: frozenset[Status] = frozenset(("ready", "waiting"))
        try:
            await self.take_in(tenant, run, only=unserved, unserved=True)
        except UndecodableEntry:
            if not any(one.topic == inbox.CONTROL for one in await self.store.unread(tenant, run)):
                raise
            await self.enforce(tenant, run, only=unserved)

    async def take_in(
        self, tenant: Tenant, run: RunId, *, only: frozenset[Status] | None = None, unserved: bool = False
    ) -> None:
        """Move the inbox of a run that nobody drives into its log; a live owner does it by itself.

        An ended run stays ended. One that is blocked or paused, or `unserved` by any worker, ends, or is paused, if it
        was asked for that; else a paused one stays as it is, and any other goes on. Raises LeaseLost when somebody
        claims it at this moment.
        """
        while True:
            row = await self.store.run(tenant, run)
            if not unserved and not await self.store.unread(tenant, run):
                return  # a worker was faster; the run, which may have ended since, is not claimed for nothing
            ended = row is not None and row.ended
            async with self._seized(tenant, run, only=only or (ENDED if ended else _OPEN)) as journal:
                if journal is not None:
                    await self._take_in(journal, unserved=unserved)
                    return
            # If it has ended since, whoever ended it may have left something unread.
            now = None if only is not None or ended else await self.store.run(tenant, run)
            if now is None or not now.ended:
                return

    async def _take_in(self, journal: Journal, *, unserved: bool) -> None:
        row = journal.row
        if not row.ended and (row.paused_at is not None or row.status == "blocked" or unserved):
            asked = await inbox.asked(journal)
            if journal.fold.cancelling is not None or asks_to_end(asked) is not None:
                await self._finish(journal)
                return
            if asked and row.paused_at is None:
                await inbox.take(journal)
                await _pause(journal, asked[0])
                return
        left = [] if row.ended else doubts(journal.fold, journal.time.now(), "its worker was lost", lost=True)
        if left:
            await journal.append(*left)
        if row.ended:
            await undoing.wake(self.store, self.clock, row)
        stays = row.ended or row.paused_at is not None
        await inbox.take(journal, change=_as_it_is(row) if stays else _going_on(row))

    async def strand(self, tenant: Tenant, run: RunId) -> None:
        """Block a run that diverged and was left to other builds, none of which is there any more: people must see it.

        A build that has not tried it takes it up from there as well. Raises LeaseLost when somebody claims it at this
        moment.
        """
        async with self._seized(tenant, run, only=frozenset(("ready",))) as journal:
            if journal is None or journal.row.reason != "diverged":
                return
            detail = journal.row.detail
            also = Also(change=Change("blocked", reason="diverged", detail=detail))
            await journal.append(Item(kinds.Blocked(reason="diverged", detail=detail)), also=also)

    async def free(self, tenant: Tenant, run: RunId) -> None:
        """Give a run back whose worker is gone and which no worker that watches it could drive.

        Raises LeaseLost when somebody claims it at this moment.
        """
        async with self._seized(tenant, run, only=frozenset(("running",))) as journal:
            if journal is None:
                return
            if journal.fold.cancelling is not None and journal.time.now() >= journal.fold.cancelling.grace_until:
                await self._conclude(journal, end_of(journal.fold))
                return
            left = doubts(journal.fold, journal.time.now(), "its worker was lost", lost=True)
            fact = kinds.Released(why="its worker is gone, and nobody here serves it")
            await journal.append(*left, Item(fact), also=Also(change=Change("ready")))

    @asynccontextmanager
    async def _seized(
        self,
        tenant: Tenant,
        run: RunId,
        *,
        only: frozenset[Status] | None = None,
        readable: bool = True,
        live: bool = False,
    ) -> AsyncIterator[Journal | None]:
        """The run's journal under a control claim; None when it has a live owner (unless `live` is asked for), or a
        status that is not in `only`.

        A later claim is an error of the caller's, not a signal. A log that cannot be read is refused before the run is
        seized, unless `readable` is not asked for: then the fold is empty.
        """
        journal = await self._seize(tenant, run, only, readable=readable, live=live)
        try:
            yield journal
        except Unwind as lost:
            epoch = journal.grip.authority.epoch if journal is not None else 0
            raise LeaseLost(run=run, epoch=epoch) from lost

    async def _seize(
        self, tenant: Tenant, run: RunId, only: frozenset[Status] | None, *, readable: bool, live: bool
    ) -> Journal | None:
        row = await self.store.run(tenant, run)
        if row is None:
            raise UnknownRun(run=run)
        if readable and not row.ended:
            fold(await self.store.window(tenant, run))
        asked_at = self.clock.boottime()
        claimed = await self.store.seize(
            tenant, run, owner=self.owner, lease_ms=_LEASE_MS, only=only, unless_live=not live, now=self.clock.now()
        )
        if claimed is None:
            return None
        time = DatabaseTime(self.clock)
        time.learn(claimed.now)
        safe = asked_at + _LEASE_MS / 1000 - margin_s(_LEASE_MS / 1000)
        grip = Grip(claimed.authority, safe, self.clock, asyncio.get_running_loop(), kept=False)
        try:
            state = Fold() if claimed.row.ended else fold(await self.store.window(tenant, run))
        except UndecodableEntry:
            if readable:
                raise
            state = Fold()
        return Journal(self.store, self.owner, _LEASE_MS, self.clock, time, grip, claimed.row, state)


def _diverged(row: RunRow) -> bool:
    return row.reason == "diverged" and row.status in ("blocked", "ready")


def _expect_adoptable(row: RunRow, wish: Acceptance) -> None:
    """Ahead of a divergence, a run that nobody drives: what a worker has in memory would not know of it."""
    if wish.step is None and not _diverged(row):
        raise WrongState(run=row.id, status=row.status, wanted="only a run that has diverged can be adopted")
    if row.status == "running" or row.ended:
        wanted = "before a build has diverged only a run that nobody drives can be adopted; pause it, or try again"
        raise WrongState(run=row.id, status=row.status, wanted=wanted)


def _as_it_is(row: RunRow) -> Change:
    """What gives a run back unchanged; one whose owner is gone is ready."""
    if row.status == "running":
        return Change("ready")
    return Change(row.status, reason=row.reason, detail=row.detail, wake_at=row.wake_at)


def _going_on(row: RunRow) -> Change:
    """What lets a run go on: it is ready. What only other code can read or continue stays so until there is some."""
    only_others = row.status in ("blocked", "ready") and row.reason in ("diverged", "undecodable")
    return _as_it_is(row) if only_others else Change("ready")


async def _pause(journal: Journal, request: Request) -> None:
    row = journal.row
    asked = await journal.store.unread(row.tenant, row.id)
    taken = tuple(one.id for one in asked if one.topic == inbox.CONTROL and is_pause(one.body))
    change = replace(_as_it_is(row), paused=True)
    left = doubts(journal.fold, journal.time.now(), "its worker was lost", lost=True) if row.status == "running" else []
    status = cast("Literal['ready', 'waiting', 'blocked']", change.status)
    fact = kinds.Paused(who=failures.writable(request.who), why=failures.writable(request.why), status=status)
    facts = [*left, Item(fact)] if row.paused_at is None else []
    await journal.append(*facts, also=Also(change=change, taken=taken))


async def find_operation(store: Store, tenant: Tenant, run: RunId, prefix: str) -> OperationRow:
    """The operation of a run whose id begins so. Raises UnknownOperation for none or several."""
    rows = await store.operations(tenant, run)
    found = [row for row in rows if row.id == prefix] or [row for row in rows if row.id.startswith(prefix)]
    if len(found) != 1:
        raise UnknownOperation(run=run, operation=prefix, matches=tuple(row.id for row in found))
    return found[0]
