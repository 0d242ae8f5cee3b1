"""Business keys, two at once: what another run did between the look at a key and the commit that takes it is found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from outlive.model.run import Head
from outlive.store.port import Append, Store
from outlive.store.within import Transaction
from tests.engine import keyed
from tests.engine.keyed import asked, bank, begin, booked, calls, operation
from tests.engine.rig import Rig

DONE = '"receipt of INV-7"'


@pytest.fixture(autouse=True)
def fresh() -> None:
    keyed.reset()


class Slow:
    """The store of a worker that is slow once: before it takes a key, `meanwhile` happens."""

    def __init__(self, store: Store, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._store, self._meanwhile = store, [meanwhile]

    async def _wait(self) -> None:
        if self._meanwhile:
            await self._meanwhile.pop()()

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        if append.take is not None:
            await self._wait()
        return await self._store.append(append, now=now)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        await self._wait()
        async with self._store.transaction() as transaction:
            yield transaction

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def race(rig: Rig, body: keyed.Body) -> None:
    """Run *a* has seen that the key is free when *b* does all of it."""

    async def meanwhile() -> None:
        await rig.settle(await begin(rig, "b", body=body))

    await begin(rig, "a", body=body)
    slow = rig.worker(rig.app(keyed.app), store=cast(Store, Slow(rig.store, meanwhile)))
    await rig.settle(slow)
    assert [(await rig.row(run)).status for run in "ab"] == ["succeeded", "succeeded"]
    assert [(await rig.entries(run))[-1].payload for run in "ab"] == [DONE, DONE]
    assert bank.charged == ["INV-7"]
    assert (await operation(rig, "a")).how == "shared"
    assert [kind for kind in await rig.kinds("a") if kind in ("intent", "done")] == []


async def test_what_another_run_took_meanwhile_is_found_by_the_commit(either: Rig) -> None:
    await race(either, calls(asked))


async def test_a_transactional_tool_does_nothing_that_another_run_did_meanwhile(either: Rig) -> None:
    await race(either, calls(booked))
    assert len(either.sent) == 1, "not even its body was begun"
