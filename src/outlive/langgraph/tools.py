"""`ToolNode`: each tool call of a graph is an operation in a run of its own, known by the thread and the call's id.

A graph that is invoked again, by whomever and after whatever crash, asks for the same run, and gets what is recorded.
What cannot be known yet (an approval, an operation in doubt) interrupts the graph until it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Literal, cast

from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph import prebuilt
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, interrupt
from pydantic import BaseModel, create_model

from outlive.app.outlive import Outlive
from outlive.app.sync import Client
from outlive.engine.definition import Agent, Tool
from outlive.engine.failures import writable
from outlive.engine.run import Run
from outlive.log.canonical import digest
from outlive.model.errors import AgentError, BadArguments, NotSerialisable, Refused, TimedOut
from outlive.model.ids import LONGEST_NAME, RunId, Tenant

AGENT = "langgraph-tool-call"
PATIENCE = timedelta(minutes=10)
Done = ToolMessage | Command[Any]

# How long a result is waited for before it is looked why there is none yet.
_LOOK = timedelta(seconds=0.5)


class Asked(BaseModel):
    """A tool call, as the run is started for it: the arguments are JSON by the tool's own parameters."""

    tool: str
    arguments: str


class Answered(BaseModel):
    """What became of it: what the tool gave, or how it is known to have failed."""

    status: Literal["success", "error"]
    content: str


async def tool_call(run: Run[Any], asked: Asked) -> Answered:
    """The agent of the runs that a `ToolNode` starts: one call, whose outcome it returns, a known failure too."""
    found = run._attempt.kit.tool(asked.tool)
    if found is None:
        raise Refused(what=f"tool {asked.tool}", why="this worker's application does not have it")
    tool = cast("Tool[..., object]", found)
    named = tool.signature.decode(asked.arguments, where=f"the arguments of {asked.tool}")
    positional, rest = tool.signature.spread(named)
    failures: tuple[type[Exception], ...] = (AgentError, *tool.policy.raises)
    try:
        result = await run.call(tool, *positional, **rest)
    except failures as error:
        return Answered(status="error", content=f"{type(error).__name__}: {error}")
    text = result if isinstance(result, str) else tool.signature.result.encode(result, where=asked.tool)
    return Answered(status="success", content=text)


class ToolNode(prebuilt.ToolNode):
    """LangGraph's `ToolNode` for tools of an application: `ToolNode([charge, refund], app=app)`.

    A worker of the application has to run, here (`async with app.worker()`) or elsewhere, from a module that makes the
    node. `tools_by_name` has what a model is bound to. A tool that is known to have failed gives a ToolMessage that
    says so. A call that waits for a person, or has no outcome after `patience`, interrupts the graph: to resume it,
    with whatever answer, looks again. Raises RunEnded for a call whose run was cancelled or failed otherwise.
    """

    def __init__(
        self, tools: Sequence[Tool[..., Any]], *, app: Outlive[Any], name: str = "tools", tenant: str = "default",
        queue: str = "default", patience: timedelta = PATIENCE, messages_key: str = "messages",
    ) -> None:  # fmt: skip
        for tool in tools:
            if app.registry.tools.get(getattr(tool, "name", "")) is not tool:
                why = "its calls would not be recorded; register the function with @app.tool(effect=…)"
                raise Refused(what=f"{tool!r} in a ToolNode", why=why)
        super().__init__(
            [_described(tool) for tool in tools], name=name, messages_key=messages_key,
            wrap_tool_call=self._recorded, awrap_tool_call=self._arecorded,
        )  # fmt: skip
        self._agent = _agent_of(app)
        self._specs = {tool.name: tool for tool in tools}
        self._client = Client(app)
        self._tenant, self._queue, self._patience = tenant, queue, patience

    def __repr__(self) -> str:
        return f"<ToolNode of {', '.join(self._specs)}>"

    def close(self) -> None:
        """Close what the first call opened; the next one opens it again."""
        self._client.close()

    def _recorded(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Done]) -> Done:
        if request.tool is None:
            return execute(request)
        while True:
            found = self._client.submit(self._result(request)).result()
            if isinstance(found, ToolMessage):
                return found
            interrupt(found)

    async def _arecorded(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Done]]) -> Done:
        if request.tool is None:
            return await execute(request)
        while True:
            work: Future[ToolMessage | dict[str, object]] = self._client.submit(self._result(request))
            found = await asyncio.wrap_future(work)
            if isinstance(found, ToolMessage):
                return found
            interrupt(found)

    async def _result(self, request: ToolCallRequest) -> ToolMessage | dict[str, object]:
        """The message of a call whose outcome is known, or why it is not."""
        call, app = request.tool_call, self._client.app
        asked = self._asked(call)
        if isinstance(asked, ToolMessage):
            return asked
        thread = str(request.runtime.config["configurable"].get("thread_id") or "")
        run = await self._name(thread, _message(request.state, self._messages_key, call), call["id"] or "")
        labels = {"tool": call["name"], "thread": thread, "tool_call": str(call["id"])}
        handle = await app.start(
            self._agent, asked, id=run, tenant=self._tenant, queue=self._queue,
            labels={key: writable(value[:LONGEST_NAME]) for key, value in labels.items()},
        )  # fmt: skip
        waited = timedelta(0)
        while True:
            try:
                answered = await handle.result(timeout=_LOOK)
            except TimedOut as error:
                waited += _LOOK
                if waited >= self._patience or await self._stands_still(run):
                    told: dict[str, object] = {"tool": call["name"], "tool_call_id": call["id"], "run": run}
                    return {**told, "status": error.status, "why": error.detail}
                continue
            return ToolMessage(answered.content, name=call["name"], tool_call_id=call["id"], status=answered.status)

    async def _stands_still(self, run: str) -> bool:
        """Whether it waits for a person, or for something that takes its time; not for its next attempt."""
        store = self._client.app.opened
        row = await store.run(Tenant(self._tenant), RunId(run))
        if row is None or row.status != "waiting":
            return row is not None and row.status == "blocked"
        return row.wake_at is None or row.wake_at - await store.now() > self._patience / timedelta(milliseconds=1)

    def _asked(self, call: ToolCall) -> Asked | ToolMessage:
        """The call in the tool's own types; a message for the model where its arguments do not fit."""
        signature = self._specs[call["name"]].signature
        try:
            return Asked(tool=call["name"], arguments=signature.encode(signature.bind((), call["args"])))
        except (BadArguments, NotSerialisable) as error:
            return ToolMessage(str(error), name=call["name"], tool_call_id=call["id"], status="error")

    async def _name(self, thread: str, message: str, call: str) -> str:
        """The id of the run of a call: the same wherever the graph is invoked again."""
        if not thread or not call:
            why = "it has no thread or no id: after a crash nobody would know that it is the same one"
            raise Refused(what="a tool call in a ToolNode", why=why)
        if not message:
            why = "its message has no id: nobody could tell it from a call with the same id in a later message, which"
            raise Refused(what="a tool call in a ToolNode", why=f"{why} would not be made; add_messages gives ids")
        key = await self._client.app.opened.key(Tenant(self._tenant))
        # Half of a surrogate pair is told from another half.
        parts = (one.encode("utf-8", "surrogatepass") for one in (thread, message, call))
        return f"tool-{digest(key, *parts)[:32]}"


def _agent_of(app: Outlive[Any]) -> Agent[Asked, Answered]:
    known = app.registry.agents.get(AGENT)
    if known is not None:
        return cast("Agent[Asked, Answered]", known)
    made: Agent[Asked, Answered] = Agent(AGENT, "1", tool_call)
    app.registry.add_agent(made)
    return made


def _described(tool: Tool[..., Any]) -> BaseTool:
    """What a model is told of a tool."""
    fields: dict[str, Any] = {
        one.name: (one.annotation, ... if one.required else one.default) for one in tool.signature.parameters
    }  # fmt: skip
    schema = create_model(tool.name, **fields)
    return StructuredTool.from_function(
        func=_never, name=tool.name, description=(tool.fn.__doc__ or tool.name).strip(), args_schema=schema
    )


def _never(**arguments: object) -> None:
    raise Refused(what="a tool of an application in another node", why="only outlive.langgraph.ToolNode records it")


def _message(state: Any, key: str, call: ToolCall) -> str:
    """The id of the message that asks for the call: a model may number its calls from 0 in each."""
    messages = state if isinstance(state, list) else state.get(key) if isinstance(state, dict) else getattr(state, key)
    for one in reversed(messages or ()):
        if isinstance(one, AIMessage) and any(call["id"] == other["id"] for other in one.tool_calls):
            return one.id or ""
    return ""
