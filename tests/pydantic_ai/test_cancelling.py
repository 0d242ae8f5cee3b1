"""A run of an agent of pydantic-ai that is cancelled or paused while people are asked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlive.errors import RunCancelled
from outlive.testing import lab
from tests.pydantic_ai import clerk
from tests.pydantic_ai.clerk import app, by_clerk
from tests.sweep.corpus import Bank


async def test_cancelled_while_people_are_asked_nothing_more_is_done() -> None:
    bank = Bank()
    async with lab(app, deps=bank) as t:
        run = await t.start(by_clerk, "begin")
        await t.advance(seconds=1)
        assert await t.cancel(run) == "cancelled"
        with pytest.raises(RunCancelled):
            await run.result()
        assert not t.sent("clerk.pay")


async def test_paused_and_resumed_it_goes_on_where_it_was() -> None:
    clerk.asked.clear()
    async with lab(app, deps=Bank()) as t:
        run = await t.start(by_clerk, "begin")
        await t.advance(seconds=1)
        await t.pause(run)
        await t.approve("clerk.pay")
        await t.advance(timedelta(hours=1))
        assert not t.sent("clerk.pay")
        await t.resume(run)
        assert (await run.result()).startswith(clerk.SAID)
    assert list(clerk.asked.values()) == [1, 1, 1, 1]
