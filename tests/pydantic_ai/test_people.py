"""What people decide about calls of an agent's tools, wherever the tools come from, and about its runs as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, ModelRetry
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

from outlive import Operation, Outlive
from outlive.errors import BadArguments, RunFailed
from outlive.pydantic_ai import agent, toolset
from outlive.testing import lab
from tests.pydantic_ai.test_tools_of_all_kinds import call, scripted


async def pay(op: Operation, cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def test_a_registered_tool_that_pydantic_ai_wants_approved_is_not_sent_without() -> None:
    app: Outlive = Outlive()
    tools = toolset(app.tool()(pay)).approval_required()
    registered = agent(app, Agent(scripted([call("pay", cents=7)]), name="one", toolsets=[tools]))
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        await t.advance(seconds=1)
        assert not t.sent("pay")
        assert await t.status(run) == "waiting"
        await t.approve("pay")
        assert await run.result() == "end"


async def test_a_call_of_a_tool_in_a_wrapped_toolset_is_approved_with_edited_arguments() -> None:
    app: Outlive = Outlive()
    paid: list[int] = []
    tools = FunctionToolset[Any](id="tools")

    async def settle(cents: int) -> str:
        paid.append(cents)
        return "paid"

    tools.add_function(settle)
    one = Agent(scripted([call("settle", cents=7)]), name="one", toolsets=[tools.approval_required()])
    registered = agent(app, one)
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        await t.advance(seconds=1)
        await t.approve("one.settle", arguments={"cents": 5})
        assert await run.result() == "end"
    assert paid == [5]


async def test_edited_arguments_that_a_plain_tool_does_not_take_are_no_doubt() -> None:
    """They are refused when they are given, or known to have failed: the body was never come to."""
    app: Outlive = Outlive()
    one = Agent(scripted([call("settle", cents=7)]), name="one")

    @one.tool_plain(requires_approval=True)
    async def settle(cents: int) -> str:
        return "paid"

    registered = agent(app, one)
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        await t.advance(seconds=1)
        try:
            await t.approve("one.settle", arguments={"cents": "a lot"})
        except BadArguments:
            return
        await t.advance(seconds=1)
        assert {row.status for row in await t.operations(run)}.isdisjoint({"unknown", "pending"})


async def unpay(op: Operation) -> str:
    """Take it back."""
    return "taken back"


def paying() -> tuple[Outlive, Any]:
    app: Outlive = Outlive()
    tool = app.tool(compensate=app.tool()(unpay))(pay)
    one = Agent(scripted([call("pay", cents=7)], [call("pay", cents=8)]), name="one", toolsets=[toolset(tool)])
    return app, agent(app, one)


async def test_a_run_is_rolled_back() -> None:
    app, registered = paying()
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        await run.result()
        undone = await run.rollback(who="lena", why="it should not have paid")
        t._waiting.runs.add(undone.id)
        assert len((await undone.result()).compensated) == 2


async def test_a_fork_asks_its_model() -> None:
    """A payment that the parent has made is held for a person; to ask a model again harms nobody."""
    app, registered = paying()
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        await run.result()
        log = await t.log(run)
        second = max(at for at, line in enumerate(log) if " turn " in line)
        fork = await run.fork(who="lena", at=second)
        t._waiting.runs.add(fork.id)
        assert await fork.result() == "end"


async def test_a_limit_of_tool_calls_bounds_the_whole_run() -> None:

    for evict in (False, True):
        app: Outlive = Outlive()
        one = Agent(scripted(*([call("note", f"c{number}")] for number in range(3))), name="one")

        @one.tool_plain
        async def note() -> str:
            return "noted"

        registered = agent(app, one, effects={"note": "read"}, limits=UsageLimits(tool_calls_limit=2))
        async with lab(app, deps=None, evict=evict) as t:
            with pytest.raises(RunFailed, match="tool_calls_limit"):
                await t.run(registered, "begin")


async def test_a_response_that_a_hook_sends_back_stays_in_the_conversation() -> None:

    handed: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        handed.append(json.dumps(ModelMessagesTypeAdapter.dump_python(messages, mode="json")))
        said = len(handed)
        return ModelResponse(parts=[TextPart("rude") if said == 1 else call("note") if said == 2 else TextPart("end")])

    hooks = Hooks[Any]()

    @hooks.on.after_model_request
    async def polite(ctx: Any, *, request_context: Any, response: ModelResponse) -> ModelResponse:
        if response.text == "rude":
            raise ModelRetry("be polite")
        return response

    one = Agent(FunctionModel(answer), name="one", capabilities=[hooks], retries=3)

    @one.tool_plain
    async def note() -> str:
        return "noted"

    app: Outlive = Outlive()
    registered = agent(app, one, effects={"note": "read"})
    async with lab(app, deps=None) as t:
        assert await t.run(registered, "begin") == "end"
    assert "be polite" in handed[1]
    assert "be polite" in handed[2]


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
async def test_a_response_that_cannot_be_stored_is_not_asked_for_again_and_again(text: str) -> None:
    """One answer is what the model has given: whether it is mended or the run fails, it was asked once."""
    asked: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(1)
        return ModelResponse(parts=[TextPart(text)])

    app: Outlive = Outlive()
    registered = agent(app, Agent(FunctionModel(answer), name="one"))
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        await t.advance(hours=3)
        assert await t.status(run) in ("succeeded", "failed")
    assert len(asked) == 1


async def test_people_who_were_asked_stay_asked_whatever_a_rule_says_by_then() -> None:
    """A rule of pydantic-ai may look at what a new worker does not have."""
    says = [True]
    app: Outlive = Outlive()
    paid: list[int] = []

    async def settle(cents: int) -> str:
        paid.append(cents)
        return "paid"

    tools = FunctionToolset[Any]([settle], id="tools")
    one = Agent(
        scripted([call("settle", cents=7)]), name="one",
        toolsets=[tools.approval_required(lambda ctx, definition, given: bool(says) and says.pop())],
    )  # fmt: skip
    registered = agent(app, one)
    async with lab(app, deps=None, evict=True) as t:
        run = await t.start(registered, "begin")
        await t.advance(seconds=1)
        await t.pause(run)
        await t.resume(run)
        await t.advance(seconds=1)
        assert (await t.status(run), paid) == ("waiting", [])
        await t.approve("one.settle")
        assert await run.result() == "end"
    assert paid == [7]


async def test_what_a_person_abandons_is_told_to_the_model() -> None:
    app: Outlive = Outlive()
    one = Agent(scripted([call("settle", cents=7)]), name="one")

    @one.tool_plain
    async def settle(cents: int) -> str:
        raise ConnectionError("nobody answers")

    registered = agent(app, one)
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        await t.advance(seconds=1)
        assert await t.status(run) == "blocked"
        await t.resolve(run, "one.settle", "abandon")
        assert await run.result() == "end"
