"""What is read of a conversation: the quick way and the thorough one say the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

from outlive.engine.guest import Guest
from outlive.harness.conversation import quickly, recalled, thoroughly
from outlive.log.entry import Entry
from outlive.model.ids import RunId
from outlive.pydantic_ai.messages import read
from outlive.testing import lab
from outlive.testing.audit import whole_log
from tests.pydantic_ai import clerk, noter
from tests.sweep.corpus import Bank


class Shelf:
    """A log, as a guest reads it."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries

    async def recorded(self) -> AsyncIterator[Entry]:
        for one in self.entries:
            yield one


async def log_of_noter() -> list[Entry]:
    async with lab(noter.app, deps=Bank(), evict=True) as t:
        run = await t.start(noter.by_noter, "begin")
        await run.result()
        return await whole_log(t._world, RunId(run.id))


async def log_of_clerk() -> list[Entry]:
    async with lab(clerk.app, deps=Bank()) as t:
        run = await t.start(clerk.by_clerk, "begin")
        await t.advance(seconds=1)
        await t.approve("clerk.pay")
        await run.result()
        return await whole_log(t._world, RunId(run.id))


async def test_both_ways_say_the_same() -> None:
    for entries, turns in ((await log_of_noter(), 8), (await log_of_clerk(), 3)):
        shelf = cast(Guest, Shelf(entries))
        quick, thorough = await quickly(shelf), await thoroughly(shelf)
        assert quick is not None
        assert len(quick.turns) >= turns
        assert quick.compacted == thorough.compacted
        assert [one.turn for one in quick.turns] == [one.turn for one in thorough.turns]
        assert read(quick.turns) == read(thorough.turns)


async def test_a_log_with_anything_else_is_folded() -> None:
    entries = await log_of_clerk()
    strange = [entry for entry in entries if entry.kind == "suspended"][:1]
    assert strange
    shelf = Shelf([one if one is not strange[0] else replace(one, kind="retried") for one in entries])
    assert await quickly(cast(Guest, shelf)) is None
    plain = Shelf([one for one in entries if one is not strange[0]])
    assert (await recalled(cast(Guest, plain))).turns
