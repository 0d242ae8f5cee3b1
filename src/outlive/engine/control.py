"""Control claims: what can be done to a run that nobody drives, by any process that has the store, without agent code.

A control claim bumps epoch and token whatever the lease says, appends its entries and releases, so that the log has
one writer all the same. An owner with a live lease is asked through the inbox instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from outlive.engine import failures, inbox
from outlive.engine.authority import DatabaseTime, Grip, margin_s
from outlive.engine.journal import Also, Item, Journal
from outlive.log import kinds
from outlive.log.fold import Fold, fold
from outlive.model.clock import Clock
from outlive.model.errors import LeaseLost, NotInDoubt, TooEarly, UnknownOperation, UnknownRun, WrongState
from outlive.model.ids import Owner, RunId, Tenant
from outlive.model.operation import IN_DOUBT, OperationRow
from outlive.model.run import RunRow, Status
from outlive.model.signals import Unwind
from outlive.store.port import Change, Message, Store

_LEASE_MS = 30_000


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
        if operation.status not in IN_DOUBT:
            raise NotInDoubt(operation=operation.id, status=operation.status)
        now = await self.store.now() if self.clock.now() is None else self.clock.now() or 0
        if operation.status == "pending" and row.status == "running":
            raise NotInDoubt(operation=operation.id, status="in flight")
        if decision.decision == "did-not-happen" and now < operation.not_before:
            raise TooEarly(operation=operation.id, seconds=(operation.not_before - now) / 1000)
        body, key = inbox.resolution(decision), self.clock.token()
        message = Message(row.tenant, row.id, inbox.RESOLUTION, key, body)
        await self.store.post(message, now=self.clock.now())
        if row.status != "running":
            # Whoever was faster in claiming it finds the decision in its inbox.
            with suppress(LeaseLost):
                await self.take_in(row.tenant, row.id)

    async def retry(self, row: RunRow, *, who: str, why: str) -> None:
        """Let a blocked run be tried again: by the same code too, with its look-ups and lapses counted from none.

        Raises WrongState, and LeaseLost when somebody claims the run at this moment; then nothing is recorded.
        """
        if row.status != "blocked":
            raise WrongState(run=row.id, status=row.status, wanted="only a blocked run can be retried")
        async with self._seized(row.tenant, row.id) as journal:
            also = Also(change=Change("ready"), forgive=True)
            await journal.append(Item(kinds.Retried(who=failures.writable(who), why=failures.writable(why))), also=also)

    async def expire(self, tenant: Tenant, run: RunId) -> None:
        """End a run whose deadline has passed. What may have been sent becomes *unknown*.

        Raises LeaseLost when somebody claims it at this moment.
        """
        async with self._seized(tenant, run) as journal:
            if journal.row.ended:
                await journal.append(also=Also(change=Change(journal.row.status)))
                return
            await inbox.take(journal)
            doubts = [
                Item(kinds.InDoubt(operation=call.sent.id, attempt=call.attempt, why="the run expired",
                not_before=self._later(journal, call.sent.timeout_ms)), call.scope, call.key)
                for call in journal.fold.in_doubt()
                if call.sent is not None and call.sent.status == "pending"
            ]  # fmt: skip
            fact = kinds.Ended(status="expired", reason="its deadline passed")
            await journal.append(*doubts, Item(fact), also=Also(change=Change("expired", reason="deadline")))

    async def take_in(self, tenant: Tenant, run: RunId) -> None:
        """Move the inbox of a run that nobody drives into its log.

        An ended run stays ended, any other becomes ready. Raises LeaseLost when somebody claims it at this moment.
        """
        async with self._seized(tenant, run) as journal:
            row = journal.row
            # Who drives it meanwhile is told by the claim's token; a run found running is only given back.
            status: Status = row.status if row.ended else "ready"
            await inbox.take(
                journal,
                change=Change(status, reason=row.reason if row.ended else "", detail=row.detail if row.ended else ""),
            )

    def _later(self, journal: Journal, timeout_ms: int) -> int:
        return journal.time.now() + timeout_ms + 60_000

    @asynccontextmanager
    async def _seized(self, tenant: Tenant, run: RunId) -> AsyncIterator[Journal]:
        """The run's journal under a control claim. A later claim is an error of the caller's, not a signal."""
        journal = await self._seize(tenant, run)
        try:
            yield journal
        except Unwind as lost:
            raise LeaseLost(run=run, epoch=journal.grip.authority.epoch) from lost

    async def _seize(self, tenant: Tenant, run: RunId) -> Journal:
        asked_at = self.clock.boottime()
        claimed = await self.store.seize(tenant, run, owner=self.owner, lease_ms=_LEASE_MS, now=self.clock.now())
        if claimed is None:
            raise UnknownRun(run=run)
        time = DatabaseTime(self.clock)
        time.learn(claimed.now)
        safe = asked_at + _LEASE_MS / 1000 - margin_s(_LEASE_MS / 1000)
        grip = Grip(claimed.authority, safe, self.clock, asyncio.get_running_loop())
        state = Fold() if claimed.row.ended else fold(await self.store.window(tenant, run))
        return Journal(self.store, self.owner, _LEASE_MS, self.clock, time, grip, claimed.row, state)


async def find_operation(store: Store, tenant: Tenant, run: RunId, prefix: str) -> OperationRow:
    """The operation of a run whose id begins so. Raises UnknownOperation for none or several."""
    found = [row for row in await store.operations(tenant, run) if row.id == prefix or row.id.startswith(prefix)]
    if len(found) != 1:
        raise UnknownOperation(run=run, operation=prefix)
    return found[0]
