"""An agent of pydantic-ai in a run: what is recorded, what people decide, and that no worker's death changes it."""

from __future__ import annotations

import asyncio
import logging

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlive import Operation, Outlive
from outlive.approvals import Approval
from outlive.pydantic_ai import agent, toolset
from outlive.testing import lab
from tests.pydantic_ai import clerk
from tests.pydantic_ai.clerk import app, by_clerk
from tests.sweep.corpus import Bank

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(autouse=True)
def fresh() -> None:
    clerk.asked.clear()


@BOTH
async def test_an_approval_suspends_it_and_the_edited_arguments_are_sent(store: str) -> None:
    bank = Bank()
    async with lab(app, deps=bank, store=store) as t:
        run = await t.start(by_clerk, "begin")
        await t.advance(seconds=1)
        assert await t.status(run) == "waiting"
        assert not t.sent("clerk.pay")
        await t.approve("clerk.pay", arguments={"cents": 5})
        said = await run.result()
    assert said.startswith(clerk.SAID)
    assert said.endswith("shy about f2 | 5 paid#6")
    assert list(clerk.asked.values()) == [1, 1, 1, 1], "a model was asked twice"


async def test_a_refusal_is_told_to_the_model() -> None:
    async with lab(app, deps=Bank()) as t:
        run = await t.start(by_clerk, "begin")
        await t.advance(seconds=1)
        await t.reject("clerk.pay", why="too much")
        assert (await run.result()).endswith("a person has refused this: too much")
        assert not t.sent("clerk.pay")


@pytest.mark.deaths
@BOTH
async def test_wherever_its_workers_die_it_says_the_same(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing acts twice, nothing is forgotten, and no recorded response is asked for again."""
    caplog.set_level(logging.CRITICAL)
    bank = Bank()
    async with lab(app, deps=bank, store=store) as t:
        t.approver = lambda row: "approve"
        report = await t.sweep(by_clerk, "begin", person=bank.know, every=6 if store == "sqlite" else 18)
    assert max(bank.acted.values()) == 1, "an effect happened twice"
    assert set(report.ends) == {"succeeded"}
    assert report.tried > 15


async def test_evicted_after_each_record_it_says_the_same() -> None:
    ends = []
    for evict in (False, True):
        clerk.asked.clear()
        async with lab(app, deps=Bank(), evict=evict) as t:
            run = await t.start(by_clerk, "begin", id="one")
            await t.advance(seconds=1)
            await t.approve("clerk.pay")
            ends.append(await run.result())
        assert list(clerk.asked.values()) == [1, 1, 1, 1]
    assert ends[0] == ends[1]


class Desk:
    """A tool that goes on as long as the test wants."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()


async def ask_first(op: Operation[Desk]) -> str:
    return "asked"


async def take_long(op: Operation[Desk]) -> str:
    await op.deps.go_on.wait()
    return "long"


def together(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if any(isinstance(one, ModelResponse) for one in messages):
        return ModelResponse(parts=[TextPart("both")])
    return ModelResponse(parts=[ToolCallPart("ask_first", {}, "a"), ToolCallPart("take_long", {}, "b")])


async def test_it_is_unloaded_when_the_last_call_beside_an_approval_has_ended() -> None:
    desk_app: Outlive[Desk] = Outlive()
    asking = desk_app.tool(approval=Approval(role="boss"))(ask_first)
    taking = desk_app.tool(effect="read")(take_long)
    one = Agent(FunctionModel(together), name="together", deps_type=Desk, toolsets=[toolset(asking, taking)])
    registered, desk = agent(desk_app, one), Desk()
    async with lab(desk_app, deps=desk) as t:
        run = await t.start(registered, "begin")
        working = asyncio.ensure_future(t.advance(seconds=1))
        while not any(" proposed " in line for line in await t.log(run)):
            await asyncio.to_thread(int)
        assert await t.status(run) == "running"
        desk.go_on.set()
        await working
        assert await t.status(run) == "waiting"
        await t.approve("ask_first")
        assert await run.result() == "both"
