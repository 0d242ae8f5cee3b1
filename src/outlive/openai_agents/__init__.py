"""Agents of the OpenAI Agents SDK as agents of an application: `outlive[openai-agents]`.

A normal `agents.Agent` is registered with `agent(app, …)`, or run by a `DurableRunner` inside a function agent. Each of
its model requests and tool calls is recorded; whatever worker goes on, goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

try:
    import agents
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise ImportError("outlive.openai_agents needs the SDK: pip install 'outlive[openai-agents]'") from error
from agents import AgentOutputSchemaBase, RunConfig
from agents.run import DEFAULT_MAX_TURNS

from outlive.app.frameworks import registered
from outlive.app.outlive import Outlive
from outlive.app.spending import Spent, spent
from outlive.engine.definition import Agent
from outlive.harness.loop import function_of
from outlive.harness.units import by_name, check_agent_name
from outlive.model.approval import Approval
from outlive.model.errors import Refused
from outlive.model.operation import Effect
from outlive.openai_agents.driver import Conversation, Settings
from outlive.openai_agents.memory import DurableSession
from outlive.openai_agents.runner import APPROVER, DurableRunner
from outlive.openai_agents.tools import operation, tool_of, toolset
from outlive.openai_agents.wiring import agents_of, plain_tools

__all__ = ["DurableRunner", "DurableSession", "Spent", "agent", "operation", "spent", "tool_of", "toolset"]

D = TypeVar("D")


def agent(  # noqa: PLR0913 - what can be said of an agent
    app: Outlive[D], agent: agents.Agent[D], *, name: str | None = None, version: str = "1",
    effects: Mapping[str, Effect] | None = None, approval: Approval = APPROVER, result: Any = None,
    max_turns: int | None = DEFAULT_MAX_TURNS, run_config: RunConfig | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Agent[str, Any]:  # fmt: skip
    """Register an agent of the SDK. Its input is the prompt, its result the output of the agent.

    Every model request and every tool call is recorded, and each turn is committed. `effects` says what repeating a
    plain tool would do; one that is not named is *external*. Tools of `toolset` are what they are registered as. What
    the SDK calls *needs approval* waits for people as `approval` says. `max_turns` bounds the whole run, as it does the
    SDK's. `result` names the type of the output where the agents that hand over to each other have several.
    Nothing is traced. Raises Refused for what could not be recorded, DuplicateName.
    """
    own = name or agent.name
    config = run_config or RunConfig(tool_not_found_behavior="return_error_to_model")
    check_agent_name(own)
    _check(own, agent, config)
    tools, served = {}, any(one.mcp_servers for one in agents_of(agent))
    for tool in plain_tools(own, agent, effects or {}):
        app.registry.add_tool(tool)
        tools[tool.name] = tool
    app.registry.unnamed.append(lambda tool: by_name(own, tool, effects or {}, tools=served))
    settings = Settings(own, agent, tools, effects or {}, approval, max_turns, config)
    drive = function_of(own, result or _output(own, agent), lambda run: Conversation(run, settings))
    return registered(app, own, version, drive, renamed)


def _check(name: str, agent: agents.Agent[Any], config: RunConfig) -> None:
    """Raises Refused for what a conversation that is committed turn by turn cannot keep."""
    every = agents_of(agent)
    if len({one.name for one in every}) < len(every):
        raise Refused(what=f"two agents of one name behind {name}", why="who goes on is recorded by its name")
    filtered = [one for each in every for one in each.handoffs if isinstance(one, agents.Handoff)]
    if any(one._agent_ref is None for one in filtered):
        why = "a worker that goes on could not find whose turn it is; make it with handoff(agent), or use DurableRunner"
        raise Refused(what=f"a handoff of {name} that does not say to whom", why=why)
    if any(one.input_filter or one.nest_handoff_history for one in filtered) or (
        config.handoff_input_filter or config.nest_handoff_history
    ):
        why = "the log has the whole conversation, and whoever goes on sees it; use DurableRunner for that"
        raise Refused(what=f"an input filter of a handoff of {name}", why=why)


def _output(name: str, agent: agents.Agent[Any]) -> Any:
    kinds = {one.output_type or str for one in agents_of(agent)}
    kind = kinds.pop()
    if kinds or isinstance(kind, AgentOutputSchemaBase):
        raise Refused(what=f"the output of {name}", why="its type does not say what is recorded; say result=")
    return kind
