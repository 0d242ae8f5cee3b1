"""pydantic-ai agents as agents of an application: `outlive[agent]`.

A normal `pydantic_ai.Agent` is registered with `agent(app, …)`. In a run each of its model requests and tool calls is
recorded, and what was said is in the run's log; whatever worker goes on, goes on from there.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar, get_origin

try:
    import pydantic_ai
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise ImportError("outlive.pydantic_ai needs pydantic-ai: pip install 'outlive[agent]'") from error
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset, ApprovalRequiredToolset, FilteredToolset, FunctionToolset
from pydantic_ai.usage import UsageLimits

from outlive.app.frameworks import registered
from outlive.app.outlive import Outlive
from outlive.app.spending import Spent, spent
from outlive.engine.definition import Agent
from outlive.engine.guest import Brought
from outlive.harness.loop import function_of
from outlive.harness.units import by_name, check_agent_name, plain_tool, tool_name
from outlive.model.approval import Approval
from outlive.model.errors import Refused
from outlive.model.operation import Effect
from outlive.pydantic_ai.driver import Choose, Conversation, Settings
from outlive.pydantic_ai.durability import KEY
from outlive.pydantic_ai.servers import Effects, served
from outlive.pydantic_ai.tools import notes, operation, toolset
from outlive.pydantic_ai.view import Compact

__all__ = ["Compact", "Spent", "agent", "notes", "operation", "spent", "toolset"]

D = TypeVar("D")
O = TypeVar("O")  # noqa: E741 - as the public surface names it

_APPROVER = Approval(role="approver")


def agent(  # noqa: PLR0913 - what can be said of an agent
    app: Outlive[D], agent: pydantic_ai.Agent[D, O], *, name: str | None = None, version: str = "1",
    effects: Mapping[str, Effect] | None = None, models: Mapping[str, Model | str] | None = None,
    choose: Choose | None = None, approval: Approval = _APPROVER, limits: UsageLimits | None = None,
    result: type[O] | None = None, stream: bool = False, compact: Compact | None = None,
    renamed: Mapping[str, str] | None = None, believe_hints: bool = False,
) -> Agent[str, O]:  # fmt: skip
    """Register a pydantic-ai agent. Its input is the prompt, its result the output of the agent.

    Every model request and every tool call is recorded, and each turn is committed. `effects` says what repeating a
    plain tool would do; one that is not named is *external*. Tools of `toolset` are what they are registered as. With
    `believe_hints` a tool of an MCP server that is not named is what its server says.
    `models` are further models by role; `choose` says, from the conversation so far, which role makes the next turn.
    What pydantic-ai calls *requires approval* waits for people as `approval` says. `limits` bound the whole run; by
    default nothing does. `result` names the type of the output where it cannot be told from `output_type`. With
    `stream` followers see the text of a model while it writes. `compact` sums up long conversations. Raises Refused
    for an agent without a name.
    """
    own = name or agent.name
    if not own:
        raise Refused(what="an agent of pydantic-ai without a name", why="what it does is recorded under it; name it")
    check_agent_name(own)
    if choose is not None and not models:
        raise Refused(what=f"choose= of {own}", why="there is nothing to choose from; say models={role: model}")
    known = Effects(effects or {}, believe_hints=believe_hints)
    tools = _registered(app, own, agent, known)
    settings = Settings(
        own, agent, tools, known, dict(models or {}), choose, approval,
        limits or UsageLimits(request_limit=None), stream, compact,
    )  # fmt: skip
    drive = function_of(own, result or _output(own, agent), lambda run: Conversation(run, settings))
    return registered(app, own, version, drive, renamed)


def _registered(
    app: Outlive[D], name: str, agent: pydantic_ai.Agent[D, O], effects: Mapping[str, Effect]
) -> dict[str, Brought]:  # fmt: skip
    """The plain tools that the agent has now, so that people can decide about their calls."""
    tools: dict[str, Brought] = {}
    found, ours, ids, opaque = set[str](), set[str](), set[str](), served(agent)
    for given in agent.toolsets:
        leaves = list[AbstractToolset[Any]]()
        given.apply(leaves.append)
        for leaf in leaves:
            if leaf.id is None or leaf.id in ids:
                why = "each needs one of its own; say id="
                raise Refused(
                    what=f"a toolset of {name} with " + (f"the id {leaf.id!r} of another" if leaf.id else "no id"),
                    why=why,
                )
            ids.add(leaf.id)
        opaque = opaque or not isinstance(given, FunctionToolset)
        named = leaves if _keeps_names(given) else []
        for known, tool in (each for one in named for each in getattr(one, "tools", {}).items()):
            found.add(known)
            if (tool.metadata or {}).get(KEY) is False:
                ours.add(known)
                continue
            effect, schema = effects.get(known, "external"), tool.function_schema.json_schema
            made = plain_tool(tool_name(name, known), effect, schema, inspect.unwrap(tool.function))
            app.registry.add_tool(made)
            tools[made.name] = made
    for known in sorted(effects):
        if known in ours:
            raise Refused(what=f"effects={{{known!r}: …}} of {name}", why="it is registered with its effect")
        if known not in found and not opaque:
            raise Refused(what=f"effects={{{known!r}: …}} of {name}", why=f"it has no such tool; {sorted(found)}")
    # Requests to its models, and tools that only a server or a wrapper can name.
    app.registry.unnamed.append(lambda tool: by_name(name, tool, effects, tools=opaque))
    return tools


def _keeps_names(toolset: AbstractToolset[Any]) -> bool:
    """Whether its tools are called by the model what they are called in it."""
    while isinstance(toolset, ApprovalRequiredToolset | FilteredToolset):
        toolset = toolset.wrapped
    return isinstance(toolset, FunctionToolset)


def _output(name: str, agent: pydantic_ai.Agent[D, O]) -> Any:
    kind = agent.output_type
    if isinstance(kind, type) or get_origin(kind) is not None:
        return kind
    if isinstance(kind, list | tuple) and kind and all(isinstance(one, type) for one in kind):
        together: Any = kind[0]
        for one in kind[1:]:
            together |= one
        return together
    raise Refused(what=f"the output of {name}", why=f"{kind!r} does not say what is recorded; say result=")
