"""A conversation goes on under another framework, and back, wherever it was: nothing repeats, and all of it is read."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import Any

import agents
import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from outlive import Outlive
from outlive import openai_agents as sdk
from outlive import pydantic_ai as pydantic
from outlive.app.spending import spent
from outlive.testing import Fault, lab
from outlive.testing.faults import FaultKind
from tests.openai_agents import swap
from tests.openai_agents.talking import Items, Said, Talking
from tests.sweep.corpus import Bank

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
ORDERS = pytest.mark.parametrize("first", ["pydantic", "sdk"])
OTHER = {"pydantic": "sdk", "sdk": "pydantic"}


@pytest.fixture(autouse=True)
def fresh() -> None:
    swap.asked.clear()
    swap.handed.clear()
    swap.on_turn.clear()


@BOTH
@ORDERS
async def test_unloaded_after_each_record_it_goes_on_under_the_other(store: str, first: str) -> None:
    """Each record is taken up by the other framework: between requests, responses, calls, approvals and commits."""
    app, clerk, seen = swap.changing(lambda times: first if times % 2 == 0 else OTHER[first])
    bank = Bank()
    async with lab(app, deps=bank, store=store, evict=True) as t:
        run = await t.start(clerk, "begin")
        await t.advance(seconds=1)
        await t.approve("clerk.pay")
        assert json.loads(await run.result()) == swap.TOLD
        names = [one.tool for one in await t.operations(run)]
    assert seen.count("sdk") > 5 < seen.count("pydantic")
    assert Counter(names) == {"clerk.model": 5, "put": 2, "clerk.book": 2, "clerk.pay": 1}
    assert list(swap.asked.values()) == [1] * (len(swap.TURNS) + 1), "a model was asked twice"
    assert set(bank.acted.values()) == {1}, "an effect happened twice"


@ORDERS
async def test_every_model_is_told_what_the_other_would_have_been(first: str) -> None:
    """Also by the one that comes back: what it said itself is there, and what the other did meanwhile."""
    app, clerk, _ = swap.changing(lambda times: first if times % 2 == 0 else OTHER[first])
    async with lab(app, deps=Bank(), evict=True) as t:
        run = await t.start(clerk, "begin")
        await t.advance(seconds=1)
        await t.approve("clerk.pay")
        await run.result()
    for framework, said in swap.handed:
        assert said == swap.TOLD[: len(said)], framework
    assert {framework for framework, _ in swap.handed} == {"pydantic", "sdk"}


@pytest.mark.deaths
@BOTH
@ORDERS
async def test_killed_anywhere_it_goes_on_under_the_other(
    store: str, first: str, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    caplog.set_level(logging.CRITICAL)
    app, clerk, seen = swap.changing(lambda times: first if times % 2 == 0 else OTHER[first])
    bank = Bank()
    async with lab(app, deps=bank, store=store) as t:
        t.approver = lambda row: "approve"
        report = await t.sweep(clerk, "begin", person=bank.know, every=13 if store == "sqlite" else 53)
    assert set(report.ends) == {"succeeded"}
    assert max(bank.acted.values()) == 1, "an effect happened twice"
    assert set(seen) == {"pydantic", "sdk"}


# Before the response is recorded, after it, between the calls and their outcomes, and before the commit.
POINTS = pytest.mark.parametrize("point", [("die", 1), *(("after", at) for at in range(1, 9))])


@ORDERS
@POINTS
async def test_killed_in_turn_three_it_goes_on_and_comes_back(first: str, point: tuple[FaultKind, int]) -> None:
    """Killed in turn 3, where the other goes on, and in turn 4, where the first one comes back."""
    app, clerk, seen = swap.changing(lambda times: turned[-1])
    bank, turned = Bank(), [first]
    kind, at = point
    async with lab(app, deps=bank) as t:

        def kill(next_one: str, fault: Fault) -> None:
            turned.append(next_one)
            t.crash(fault)

        swap.on_turn[2] = lambda: kill(OTHER[first], Fault(kind, at, "append"))
        swap.on_turn[3] = lambda: kill(first, Fault("die", 1, "append"))
        run = await t.start(clerk, "begin")
        await t.advance(minutes=5)
        await t.approve("clerk.pay")
        assert json.loads(await run.result()) == swap.TOLD
    assert swap.asked == {0: 1, 1: 1, 2: 1 if kind == "after" else 2, 3: 2, 4: 1}
    assert set(bank.acted.values()) == {1}, "an effect happened twice"
    assert [framework for framework, _ in swap.handed][-1] == first
    assert seen[0] == first
    assert OTHER[first] in seen


async def test_what_both_have_spent_is_one_sum() -> None:
    app, clerk, seen = swap.changing(lambda times: "sdk" if times % 2 else "pydantic")
    async with lab(app, deps=Bank(), evict=True) as t:
        run = await t.start(clerk, "begin")
        await t.advance(seconds=1)
        await t.approve("clerk.pay")
        await run.result()
        app.use(t._world.store)
        (one,) = await spent(app, run.id)
    assert (one.name, one.requests, one.lost) == ("clerk.model", len(swap.TURNS) + 1, 0)
    assert one.input_tokens >= 3
    assert one.output_tokens >= 2


class Told:
    """What the model of the SDK is handed of a conversation that pydantic-ai has begun."""

    def __init__(self) -> None:
        self.items: list[Items] = []

    def __call__(self, items: Items) -> Said:
        self.items.append(items)
        return "done by the SDK"


def _both(begun: pydantic_ai.Agent[None, Any], told: Told, **settings: Any) -> tuple[Outlive, Any, list[str]]:
    """An agent that pydantic-ai has in the first claim, and the SDK from the second on."""
    app: Outlive = Outlive()
    first = pydantic.agent(app, begun, name="clerk", **settings)
    second = sdk.agent(Outlive(), agents.Agent[None](name="clerk", model=Talking(told)))
    claims: list[str] = []
    drive = first.fn

    async def either(run: Any, prompt: str) -> Any:
        claims.append("sdk" if claims else "pydantic")
        return await (second.fn if len(claims) > 1 else drive)(run, prompt)

    first.fn = either
    return app, first, claims


def _with_summaries(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if not info.function_tools:
        return ModelResponse(parts=[TextPart("a summary")])
    swap.asked[0] += 1
    if swap.asked[0] == 4:
        raise ConnectionError("somebody else goes on")
    usage = RequestUsage(input_tokens={1: 1000, 2: 2000, 3: 100}[swap.asked[0]])
    return ModelResponse(parts=[ToolCallPart("say", {"what": f"w{swap.asked[0]}"}, f"c{swap.asked[0]}")], usage=usage)


async def test_a_summary_goes_over_with_the_turns_since() -> None:
    begun = pydantic_ai.Agent[None, str](FunctionModel(_with_summaries), name="clerk")

    @begun.tool_plain
    def say(what: str) -> str:
        return f"said {what}"

    told = Told()
    compact = pydantic.Compact(at_tokens=1500, keep=1)
    app, clerk, claims = _both(begun, told, effects={"say": "read"}, compact=compact)
    async with lab(app, deps=None) as t:
        assert await t.run(clerk, "begin") == "done by the SDK"
    (items,) = told.items
    assert items[0] == {"role": "user", "content": "begin"}
    assert "a summary" in str(items[1]["content"])
    calls = [one["call_id"] for one in items[2:] if one.get("type") == "function_call"]
    assert len(calls) == 2, "of three turns, the first one is in the summary"
    assert items[-1] == {"type": "function_call_output", "call_id": calls[-1], "output": f"said w{calls[-1][1:]}"}
    assert claims == ["pydantic", "sdk"]


class Answer(BaseModel):
    """An output of pydantic-ai that is called as a tool."""

    number: int


def _asking(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if len(messages) > 1:
        raise ConnectionError("somebody else goes on")
    thinking = ThinkingPart("hm", signature="sealed")
    wrong = ToolCallPart(info.output_tools[0].name, {"number": "no number"}, "out")
    return ModelResponse(parts=[thinking, TextPart("let me see"), wrong])


async def test_what_does_not_cross_is_left_out() -> None:
    """Thinking stays behind; pydantic-ai's asking again for an output goes over as an answer to its call."""
    begun = pydantic_ai.Agent[None, Answer](
        FunctionModel(_asking), name="clerk", output_type=Answer, system_prompt="Be brief."
    )  # fmt: skip
    told = Told()
    app, clerk, _ = _both(begun, told, result=Any)
    async with lab(app, deps=None) as t:
        assert await t.run(clerk, "begin") == "done by the SDK"
    (items,) = told.items
    assert "sealed" not in json.dumps(items)
    assert [one.get("role") or one.get("type") for one in items] == [
        "system", "user", "assistant", "function_call", "function_call_output",
    ]  # fmt: skip
