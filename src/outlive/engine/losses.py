"""What the database has lost: a worker compares what it saw acknowledged with what is there, and blocks where less is.

It looks when the store says that a run is not its own any more, when it claims a run that it knows, and at all that it
remembers when another database answers than before (a replica that was promoted, a backup). What was sent in the lost
entries goes into the log again, in doubt or with the outcome that the worker saw, so that no later attempt sends it
once more before a person has decided.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque

from outlive.engine.account import Account, Loss, detail, told
from outlive.engine.authority import DatabaseTime, Grip, margin_s
from outlive.engine.journal import Journal, Kept, Memory
from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.log.fold import Fold, fold
from outlive.model.clock import Clock
from outlive.model.errors import StoreError, UndecodableEntry
from outlive.model.ids import Owner, RunId, Tenant
from outlive.model.signals import Unwind
from outlive.store.port import Store

log = logging.getLogger("outlive.worker")

_LEASE_MS = 30_000
_TRIES = 600
_REMEMBERED = 256
_REMEMBERED_S = 600.0
_PAGE = 1000
# Entries without which a run goes on just so.
_EMPTY = frozenset((kinds.ClaimedBy.KIND, kinds.Suspended.KIND, kinds.Released.KIND))

Place = tuple[Tenant, RunId]


class Losses:
    """What a worker remembers of the runs that it drives, and of those that it has left a short while ago."""

    def __init__(self, store: Store, clock: Clock, owner: Owner) -> None:
        self.store, self.clock, self.owner = store, clock, owner
        self._driven: dict[Place, Journal] = {}
        self._left: OrderedDict[Place, tuple[float, Memory]] = OrderedDict()
        self._comparing: asyncio.Task[None] | None = None

    async def begin(self, journal: Journal) -> bool:
        """Remember what this worker drives from here on. Whether an earlier attempt of it shows that entries are lost:
        then the run is blocked.
        """
        place = (journal.row.tenant, journal.row.id)
        left, before = self._left.pop(place, None), self._driven.get(place)
        past = before.memory if before is not None else left[1] if left is not None else None
        self._driven[place] = journal
        if past is not None:
            if await self.examine(*place, past):
                return True
            kept = journal.memory.kept
            journal.memory.kept = deque((*past.kept, *kept), maxlen=kept.maxlen)
        return False

    def end(self, journal: Journal, *, lost: bool) -> None:
        """This worker drives it no longer; what it gave back in good order may still be lost."""
        place = (journal.row.tenant, journal.row.id)
        if self._driven.get(place) is journal:
            del self._driven[place]
            if not lost:
                self._left[place] = (self.clock.boottime(), journal.memory)
        while self._left:
            oldest, (since, _) = next(iter(self._left.items()))
            if len(self._left) <= _REMEMBERED and self.clock.boottime() - since < _REMEMBERED_S:
                break
            del self._left[oldest]

    def compare_soon(self) -> None:
        """Another database answers: compare, in the background. From the event loop's thread."""
        self._comparing = asyncio.ensure_future(self.compare())

    async def compare(self) -> None:
        """Compare all that is remembered with what the database has."""
        driven, left = list(self._driven.items()), list(self._left.items())
        found = len(driven) + len(left)
        log.warning("another database answers than before: comparing the logs of %d runs with it", found)
        for place, journal in driven:
            if await self.examine(*place, journal.memory):
                journal.grip.lose()
        for place, (_, memory) in left:
            if await self.examine(*place, memory):
                self._left.pop(place, None)

    async def examine(self, tenant: Tenant, run: RunId, memory: Memory) -> bool:
        """Whether the log lacks what is remembered of it; then the run is blocked. Once at a time."""
        if memory.examined is None:
            memory.examined = asyncio.ensure_future(self._examine(tenant, run, memory))
        found = await asyncio.shield(memory.examined)
        if not found:
            memory.examined = None  # a log that was whole may lose something later
        return found

    async def _examine(self, tenant: Tenant, run: RunId, memory: Memory) -> bool:
        for _ in range(_TRIES):
            try:
                loss = await self._loss(tenant, run, memory)
                if loss is None:
                    return False
                await self._block(tenant, run, loss)
            except StoreError as error:
                log.warning("run %s: its log cannot be compared, trying again: %s", run, error)
                await self.clock.sleep(1.0)
            except Unwind:
                log.info("run %s: somebody else claimed it while its loss was recorded, trying again", run)
            else:
                return True
        log.error("run %s: its log could not be compared", run)
        return False

    async def _loss(self, tenant: Tenant, run: RunId, memory: Memory) -> Loss | None:
        end = memory.end
        last = await self.store.entries(tenant, run, after=end.seq - 2, limit=1)
        if not end.seq or (last and (last[0].seq, last[0].digest) == (end.seq - 1, end.digest)):
            return None
        there = await self._from(tenant, run, memory.kept[0].end.seq - 2)
        digests = {entry.seq: entry.digest for entry in there}
        gone: list[Kept] = []
        for kept in reversed(memory.kept):
            if digests.get(kept.end.seq - 1) == kept.end.digest:
                break
            gone.insert(0, kept)
        first = gone[0].first
        lost = tuple((one.first + n, draft) for one in gone for n, draft in enumerate(one.drafts))
        rows = {row.id: row for one in gone for row in one.operations}
        if all(draft.kind in _EMPTY for _, draft in lost):
            log.warning("run %s: the database has lost entries %d-%d, none of which matters", run, first, end.seq - 1)
            return None
        since = tuple(entry for entry in there if entry.seq >= first)
        return Loss(first, end.seq - 1, lost, tuple(rows.values()), since)

    async def _from(self, tenant: Tenant, run: RunId, after: int) -> list[Entry]:
        found: list[Entry] = []
        while page := await self.store.entries(tenant, run, after=after, limit=_PAGE):
            found += page
            after = page[-1].seq
        return found

    async def _block(self, tenant: Tenant, run: RunId, loss: Loss) -> None:
        asked_at = self.clock.boottime()
        claimed = await self.store.seize(
            tenant, run, owner=self.owner, lease_ms=_LEASE_MS, now=self.clock.now()
        )  # fmt: skip
        if claimed is None:
            log.error("run %s is not in the database any more, which had acknowledged: %s", run, "; ".join(told(loss)))
            return
        time = DatabaseTime(self.clock)
        time.learn(claimed.now)
        safe = asked_at + _LEASE_MS / 1000 - margin_s(_LEASE_MS / 1000)
        grip = Grip(claimed.authority, safe, self.clock, asyncio.get_running_loop(), kept=False)
        try:
            state = Fold() if claimed.row.ended else fold(await self.store.window(tenant, run))
        except UndecodableEntry:
            state = Fold()
        journal = Journal(self.store, self.owner, _LEASE_MS, self.clock, time, grip, claimed.row, state)
        account = Account(journal, loss)
        for seen in loss.operations:
            await account.consider(seen)
        await account.append()
        log.error("run %s: %s", run, detail(loss))
