"""Long conversations: what a model is handed of them, and what happens when that is still too long."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from outlive import Outlive
from outlive.app.operate import retry
from outlive.errors import RunFailed
from outlive.model.ids import RunId
from outlive.pydantic_ai import Compact, agent
from outlive.testing import Lab, lab
from outlive.testing.audit import whole_log
from tests.pydantic_ai import noter
from tests.pydantic_ai.noter import by_noter, look, returned, spoken
from tests.pydantic_ai.test_conversations import BOTH, Talker, TooLong, talking
from tests.sweep.corpus import Bank


class Exceeded(ModelHTTPError, ModelContextWindowExceededError):
    """As providers raise it."""


def _context(talker: Talker) -> Any:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        try:
            return talker(messages, info)
        except TooLong:
            raise Exceeded(400, "talker", "too many tokens: 9000") from None

    return model


async def events(t: Lab[Any], run: Any, name: str) -> list[dict[str, Any]]:
    log = await whole_log(t._world, RunId(run.id))
    return [json.loads(one.payload or "") for one in log if one.kind == "emitted" and f"emit:{name}" in one.body]


async def test_a_conversation_that_is_too_long_is_summed_up_once_and_the_turn_repeated() -> None:
    talker = Talker(longest=9)
    app, registered = talking(_context(talker), compact=Compact(keep=2))
    for evict in (False, True):
        async with lab(app, deps=None, evict=evict) as t:
            run = await t.start(registered, "begin")
            assert await run.result() == "all noted"
            told = await events(t, run, "compacted")
        assert [(one["first"], one["last"]) for one in told] == [(1, 3), (4, 6)]
        assert told[0]["summary"] == "summary 1" or evict
        assert all(one["tokens_before"] > one["tokens_after"] > 0 for one in told)


@BOTH
async def test_one_that_is_still_too_long_blocks_with_the_figures_until_somebody_has_mended_it(store: str) -> None:
    talker, mended = Talker(), list[str]()

    def narrow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(talker.handed) == 3 and info.function_tools and not mended:
            raise Exceeded(400, "talker", "too many tokens: 9000")
        return talker(messages, info)

    app, registered = talking(narrow, compact=Compact(keep=9))
    async with lab(app, deps=None, store=store) as t:
        run = await t.start(registered, "begin")
        for _ in range(2):
            await t.advance(seconds=1)
            assert await t.status(run) == "blocked"
            row = await t._world.row(RunId(run.id))
            assert row.reason == "context too long"
            blocked = (await whole_log(t._world, RunId(run.id)))[-1].body
            assert "messages of" in blocked
            assert "500 tokens" in blocked, "what the provider counted last"
            assert "too many tokens: 9000" in blocked, "what the provider says"
            await retry(t._world.store, "default", run.id, who="ops", why="once more")
        await t.advance(seconds=1)
        assert await t.status(run) == "blocked"
        mended.append("a larger model")
        await retry(t._world.store, "default", run.id, who="ops", why="a larger model")
        assert await run.result() == "all noted"


async def test_without_summaries_it_blocks_as_well() -> None:
    app, registered = talking(_context(Talker(longest=2)))
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        await t.advance(seconds=1)
        assert await t.status(run) == "blocked"
        await t.cancel(run)
        await t.advance(seconds=1)
        assert await t.status(run) == "cancelled"


async def test_what_is_too_long_to_be_summed_up_is_so_by_its_beginning_and_end() -> None:
    talker, sizes = Talker(longest=9), list[int]()

    def narrow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not info.function_tools:
            sizes.append(len(spoken(messages)[0]))
            if sizes[-1] > 800:
                raise Exceeded(400, "talker", "too many tokens")
        said: ModelResponse = _context(talker)(messages, info)
        return said

    app, registered = talking(narrow, compact=Compact(keep=2, prompt="Sum up."))
    async with lab(app, deps=None) as t:
        assert await t.run(registered, "begin") == "all noted"
    assert sizes[0] > 800 > sizes[1]


@BOTH
async def test_notes_stay_in_view_and_are_seen_by_followers(store: str) -> None:
    for evict in (False, True):
        async with lab(noter.app, deps=Bank(), store=store, evict=evict) as t:
            run = await t.start(by_noter, "begin")
            handed = await run.result()
            assert "a summary that forgot it" in handed
            assert "- the customer is called Ada" in handed
            assert await events(t, run, "note") == [{"agent": "noter", "text": "the customer is called Ada"}]


BOOK = "".join(f"{line:05}\n" for line in range(2000))


async def read_book() -> str:
    """A whole book."""
    return BOOK


def reader(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    told = returned(messages)
    if not told:
        return ModelResponse(parts=[ToolCallPart("read_book", {}, "book")])
    if len(told) == 1:
        return ModelResponse(parts=[ToolCallPart("read_result", {"call_id": "book", "start": 11_990}, "more")])
    if len(told) == 2 and "nobody" not in str(messages):
        return ModelResponse(parts=[ToolCallPart("read_result", {"call_id": "nobody", "start": 0}, "none")])
    if len(told) == 3:
        return ModelResponse(parts=[ToolCallPart("read_result", {"call_id": "book", "start": -9000}, "before")])
    assert len(str(told[-1].content)) < 1100
    return ModelResponse(parts=[TextPart(json.dumps([str(one.content) for one in told[:2]]))])


@BOTH
async def test_a_long_result_is_handed_over_by_its_beginning_and_can_be_read_on(store: str) -> None:
    app: Outlive = Outlive()
    one = Agent(FunctionModel(reader), name="reader", tools=[read_book])
    registered = agent(app, one, effects={"read_book": "read"}, compact=Compact(preview=1000))
    for evict in (False, True):
        async with lab(app, deps=None, store=store, evict=evict) as t:
            run = await t.start(registered, "begin")
            first, more = json.loads(await run.result())
            steps = [one for one in await whole_log(t._world, RunId(run.id)) if one.kind == "step"]
        assert first.startswith(BOOK[:1000] + "\n[12000 characters in all")
        assert more == BOOK[11_990:]
        assert len(steps) == 1, "to read on is recorded nowhere but in the conversation"
        assert json.loads(steps[0].payload or "") == BOOK


def counting(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    number = len(returned(messages)) + 1
    usage = RequestUsage(input_tokens=10, output_tokens=1, cost=Decimal("0.5"))
    return ModelResponse(parts=[ToolCallPart("look", {"number": number}, f"l{number}")], usage=usage)


LIMITS = [
    (UsageLimits(request_limit=10), "requests", "8", "request_limit of 10"),
    (UsageLimits(tool_calls_limit=10, request_limit=None), "calls of tools", "8", "tool_calls_limit of 10"),
    (UsageLimits(total_tokens_limit=110, request_limit=None), "tokens", "88", "total_tokens_limit of 110"),
    (UsageLimits(cost_limit=Decimal(5), request_limit=None), "US dollars", "4.0", "`cost_limit` of 5"),
]


@pytest.mark.parametrize(("limits", "name", "used", "says"), LIMITS)
async def test_limits_are_told_of_before_they_are_reached_and_hold_on_any_worker(
    limits: UsageLimits, name: str, used: str, says: str
) -> None:
    handed: list[list[str]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        handed.append(spoken(messages))
        return counting(messages, info)

    app: Outlive = Outlive()
    one = Agent(FunctionModel(model), name="counting", tools=[look])
    registered = agent(app, one, effects={"look": "read"}, limits=limits)
    ends = []
    for evict in (False, True):
        handed.clear()
        async with lab(app, deps=None, evict=evict) as t:
            run = await t.start(registered, "begin")
            with pytest.raises(RunFailed, match=says) as failed:
                await run.result()
            near = await events(t, run, "near-limit")
            ends.append((str(failed.value).partition("failed")[2], len([*await t.operations(run)])))
        assert [(one["limit"], one["used"]) for one in near] == [(name, used)]
        first = next(place for place, said in enumerate(handed) if "Little is left" in said[-1])
        assert first == 8
        assert name in handed[first][-1]
    assert ends[0] == ends[1]
