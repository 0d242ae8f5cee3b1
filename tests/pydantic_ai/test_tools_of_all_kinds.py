"""What an agent's tools are called, given and return, and whose they are, is no matter of how they are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlive import Operation, Outlive
from outlive.errors import Refused, RunFailed
from outlive.harness.crossing import pieces
from outlive.harness.units import plain_tool, tool_name
from outlive.pydantic_ai import agent, toolset
from outlive.testing import lab

Told = list[object]


def call(name: str, id: str = "c1", **arguments: object) -> ToolCallPart:
    return ToolCallPart(name, arguments, id)


def scripted(*turns: list[Any], told: Told | None = None) -> FunctionModel:
    """A model that gives these responses one after the other, then *end*; `told` gets what tools gave."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if told is not None:
            told[:] = [
                part.content
                for one in messages
                if isinstance(one, ModelRequest)
                for part in one.parts
                if isinstance(part, ToolReturnPart)
            ]
        turn = sum(isinstance(one, ModelResponse) for one in messages)
        return ModelResponse(parts=[*turns[turn]] if turn < len(turns) else [TextPart("end")])

    return FunctionModel(answer)


async def ended(one: Agent[Any, Any], *, evict: bool = False, **settings: Any) -> object:
    """What a run of it comes to."""
    app: Outlive = Outlive()
    async with lab(app, deps=None, evict=evict) as t:
        return await t.run(agent(app, one, **settings), "begin")


HOSTILE = {"kind": "tool_content_result", "result": 5}


async def test_what_a_plain_tool_returns_is_never_taken_for_a_wrapper() -> None:
    told: Told = []
    one = Agent(scripted([call("fetch")], told=told), name="one")

    @one.tool_plain
    async def fetch() -> dict[str, object]:
        return HOSTILE

    await ended(one, effects={"fetch": "read"})
    assert told == [HOSTILE]


class Server:
    """Tools of somebody else, who names them; `wrapped` is how pydantic-ai is given them."""

    def __init__(self, name: str, wrapped: Callable[[FunctionToolset[Any]], Any], id: str = "server") -> None:
        self.calls, tools = 0, FunctionToolset[Any](id=id)

        async def act(model: str = "", prompt: str = "") -> str:
            self.calls += 1
            return "acted"

        tools.add_function(act, name=name)
        self.toolset = wrapped(tools)


def unnamed(tools: FunctionToolset[Any]) -> Any:
    return tools.filtered(lambda ctx, tool: True)


@pytest.mark.parametrize("name", ["model", "compact"])
async def test_a_tool_of_a_server_that_is_called_as_a_request_is_no_request(name: str) -> None:
    server = Server(name, unnamed)
    one = Agent(
        scripted([call(name, model="m", prompt="p")], [call(name, "c2")]), name="one", toolsets=[server.toolset]
    )
    app: Outlive = Outlive()
    registered = agent(app, one)
    async with lab(app, deps=None, evict=True) as t:
        run = await t.start(registered, "begin")
        assert await run.result() == "end"
        tools = [row.tool for row in await t.operations(run)]
    assert server.calls == 2
    assert tools == ["one.model", f"one.tool-{name}", "one.model", f"one.tool-{name}", "one.model"]


async def test_a_dynamic_toolset() -> None:
    one = Agent[None, str](scripted([call("act")]), name="one")
    server = Server("act", lambda tools: tools)

    @one.toolset(id="dynamic")
    def tools(ctx: RunContext[None]) -> FunctionToolset[Any]:
        made: FunctionToolset[Any] = server.toolset
        return made

    assert await ended(one) == "end"
    assert server.calls == 1


async def test_the_effect_of_a_tool_in_a_wrapped_toolset_can_be_said() -> None:
    server = Server("act", lambda tools: tools.prefixed("their"))
    one = Agent(scripted([call("their_act")]), name="one", toolsets=[server.toolset])
    app: Outlive = Outlive()
    registered = agent(app, one, effects={"their_act": "read"})
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        await run.result()
        assert [one.tool for one in await t.operations(run)] == ["one.model"] * 2, "a read is a step"


async def test_an_argument_that_a_server_does_not_know_is_told_to_the_model() -> None:
    """Arguments for a server's tools are not validated before they are sent."""
    told: Told = []
    server = Server("act", Unvalidated)
    one = Agent(scripted([call("act", made_up=1)], told=told), name="one", toolsets=[server.toolset])
    assert await ended(one) == "end"
    assert "made_up" in str(told)


class Unvalidated(FunctionToolset[Any]):
    """As a toolset of a server is: what the model gives goes to it."""

    def __init__(self, tools: FunctionToolset[Any]) -> None:
        super().__init__(id="unvalidated")

        async def act(**given: object) -> str:
            return "acted"

        schema = {"type": "object", "properties": {"model": {"type": "string"}}}
        self.add_tool(Tool.from_schema(act, name="act", description="", json_schema=schema))


def calculate(op: str, left: int) -> str:
    return f"{op}{left}"


async def test_a_plain_tool_has_a_parameter_that_is_called_as_the_operation() -> None:
    told: Told = []
    one = Agent(scripted([call("calculate", op="+", left=1)], told=told), name="one", tools=[calculate])
    assert await ended(one, effects={"calculate": "read"}) == "end"
    assert told == ["+1"]


def keyworded() -> Any:
    async def move(**given: object) -> str:
        return str(given)

    schema = {"type": "object", "properties": {"from": {"type": "string"}}, "required": ["from"]}
    return Tool.from_schema(move, name="move", description="", json_schema=schema)


async def test_a_plain_tool_has_a_parameter_that_is_a_word_of_the_language() -> None:
    told: Told = []
    one = Agent(scripted([ToolCallPart("move", {"from": "a"}, "c1")], told=told), name="one", tools=[keyworded()])
    assert await ended(one, effects={"move": "read"}) == "end"
    assert told == ["{'from': 'a'}"]


async def search(op: Operation, ctx: str) -> str:
    """Search a context."""
    return f"in {ctx}"


async def test_a_registered_tool_has_a_parameter_that_is_called_as_the_context() -> None:
    app: Outlive = Outlive()
    told: Told = []
    tools = toolset(app.tool(effect="read")(search))
    registered = agent(app, Agent(scripted([call("search", ctx="x")], told=told), name="one", toolsets=[tools]))
    async with lab(app, deps=None) as t:
        assert await t.run(registered, "begin") == "end"
    assert told == ["in x"]


async def pay(op: Operation, cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


async def test_an_agent_that_a_plain_tool_runs_calls_no_registered_tool() -> None:
    """Its ids are those of another conversation, which may be the same: nothing hangs, and the model is told why."""
    app: Outlive = Outlive()
    told: Told = []
    inner = Agent(scripted([call("pay", "c1", cents=1)]), name="inner", toolsets=[toolset(app.tool()(pay))])
    outer = Agent(scripted([call("delegate", "c1")], told=told), name="outer")

    @outer.tool_plain
    async def delegate() -> str:
        return (await inner.run("begin")).output

    registered = agent(app, outer, effects={"delegate": "read"})
    async with lab(app, deps=None) as t:
        assert await t.run(registered, "begin") == "end"
        assert not t.sent("pay")
    assert "a call of pay inside the call of outer.delegate is refused" in str(told)


async def test_two_calls_of_one_response_have_ids_of_their_own() -> None:
    """Nobody could tell which of them people have decided about, and which was made."""
    server = Server("act", lambda tools: tools)
    one = Agent(scripted([call("act", "c1"), call("act", "c1", model="m")]), name="one", toolsets=[server.toolset])
    with pytest.raises(RunFailed, match="two calls of one response have one id"):
        await ended(one)
    assert server.calls == 0


async def test_tools_of_one_name_behind_two_prefixes_are_two_tools() -> None:
    left = Server("act", lambda tools: tools.prefixed("left"), id="left")
    right = Server("act", lambda tools: tools.prefixed("right"), id="right")
    one = Agent(
        scripted([call("left_act", "c1"), call("right_act", "c2")]), name="one", toolsets=[left.toolset, right.toolset]
    )
    app: Outlive = Outlive()
    registered = agent(app, one, effects={"left_act": "read"})
    async with lab(app, deps=None) as t:
        run = await t.start(registered, "begin")
        assert await run.result() == "end"
        assert [row.tool for row in await t.operations(run)] == ["one.model", "one.right_act", "one.model"]
    assert (left.calls, right.calls) == (1, 1)


@pytest.mark.parametrize("of_the_app", [False, True])
async def test_arguments_that_cannot_be_stored_are_mended(of_the_app: bool) -> None:
    app: Outlive = Outlive()
    tools: Any = toolset(app.tool()(search)) if of_the_app else FunctionToolset([plain_search], id="plain")
    told: Told = []
    model = scripted([call("search" if of_the_app else "plain_search", ctx="a\0b")], told=told)
    registered = agent(app, Agent(model, name="one", toolsets=[tools]))
    async with lab(app, deps=None) as t:
        assert await t.run(registered, "begin") == "end"
    assert told == ["in a\ufffdb"]


async def plain_search(ctx: str) -> str:
    """Search anywhere."""
    return f"in {ctx}"


def test_schemas_that_name_no_parameters_are_taken_as_they_are() -> None:
    schemas: list[dict[str, Any]] = [
        {"properties": {"value": True}},
        {"properties": None},
        {"properties": {"from": {}}},
    ]
    for schema in schemas:
        made = plain_tool("one.act", "read", schema)
        assert [one.name for one in made.signature.parameters] == ["arguments"]
    assert tool_name("one", "files/read") == "one.files_read"
    with pytest.raises(Refused, match="named so"):
        agent(Outlive(), Agent(scripted(), name="car.model"))


def test_arguments_of_another_framework_that_are_no_object_stay_text() -> None:
    (piece,) = pieces({"type": "function_call", "call_id": "c1", "name": "act", "arguments": "[1]"})
    assert piece.content == "[1]"
