"""The answer to the claim that settles an unknown commit is lost as well: the run is still ours, and does not move."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from outlive.engine.worker import Worker
from outlive.errors import CommitUnknown
from outlive.model.ids import Owner
from outlive.model.run import Authority
from outlive.store.port import Claimed, Store
from tests.engine.rig import Rig, rig_at
from tests.engine.subject import RUN, base, begin, reset
from tests.engine.test_journal import Lossy, body, committed_but_lost


class Forgetful(Lossy):
    """As many claims from ourselves as `lost` has are made, or not, and not answered."""

    def __init__(self, store: Store, lost: list[bool]) -> None:
        super().__init__(store, 2, committed_but_lost)
        self.lost = lost
        self.worker: Worker | None = None

    async def again(
        self, authority: Authority, *, owner: Owner, lease_ms: int, token: str | None = None, now: int | None = None
    ) -> Claimed | None:
        if not self.lost:
            return await self._store.again(authority, owner=owner, lease_ms=lease_ms, token=token, now=now)
        if self.lost.pop(0):
            await self._store.again(authority, owner=owner, lease_ms=lease_ms, token=token, now=now)
        assert self.worker is not None
        # The database knows nothing of the authority that we still hold.
        await asyncio.to_thread(self.worker._keeper.renew_once)
        raise CommitUnknown(store="forgetful")


async def idle(rig: Rig, worker: Worker) -> None:
    """Until nothing is driven any more; time moves on to whoever sleeps."""
    await worker.claim()
    driven = asyncio.ensure_future(worker.idle())
    while not driven.done():
        await asyncio.wait([driven], timeout=0.05)
        if not driven.done() and (waits := rig.clock.next_sleeper()) is not None:
            rig.clock.advance(waits)


@pytest.mark.parametrize("lost", [[True], [False], [True, True], [True, False, True], [False, True]], ids=str)
async def test_a_claim_from_ourselves_that_is_not_answered_is_ours_all_the_same(
    tmp_path: Path, lost: list[bool]
) -> None:
    reset()
    async with rig_at(tmp_path) as rig:
        await begin(rig, body)
        store = Forgetful(rig.store, [*lost])
        worker = store.worker = rig.worker(rig.app(base), store=cast(Store, store))
        await idle(rig, worker)
        assert (await rig.row(RUN)).status == "succeeded"
        assert store.lost == []
        claims = [line.text.split()[0] for line in await rig.lines(RUN) if line.kind == "claimed"]
        assert claims[0] == "start"
        assert set(claims[1:]) == {"again"}
        assert len(claims) == 2 + any(lost), "the start, the one that was made and not answered, the one that was"
        assert len(rig.sent) == 1
