"""Clones of an agent, and of those that it can hand over to, whose requests and calls go through the log of a run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, cast

from agents import Agent, FunctionTool, Handoff, HostedMCPTool, RunConfig, RunContextWrapper, Tool
from agents.tool import CodeInterpreterTool, FileSearchTool, ImageGenerationTool, ToolSearchTool, WebSearchTool

from outlive.engine.guest import Brought
from outlive.harness.units import model_name
from outlive.model.errors import Refused
from outlive.model.operation import Effect
from outlive.openai_agents.lanes import Turning
from outlive.openai_agents.model import Recorded, config_of, settings_of
from outlive.openai_agents.tools import OfRuns, plain, recorded

# The provider executes them: what they did is in its response.
_HOSTED = (CodeInterpreterTool, FileSearchTool, HostedMCPTool, ImageGenerationTool, ToolSearchTool, WebSearchTool)


class Wiring:
    """The clones for one turn, or one run of the SDK's runner."""

    def __init__(self, turning: Turning, start: Agent[Any], config: RunConfig) -> None:
        self._turning, self._start, self._given = turning, start, config
        self.config = config_of(config)
        self._clones: dict[int, Agent[Any]] = {}
        self._originals: dict[int, Agent[Any]] = {}

    def of(self, agent: Agent[Any]) -> Agent[Any]:
        """The clone of an agent."""
        agent = self.original(agent)
        if id(agent) not in self._clones:
            check_agent(agent)
            path = _path(self._start, agent)
            name = model_name(self._turning.ledger.agent, path or None)
            tools = [self._tool(agent, path, one) for one in agent.tools]
            model = Recorded(self._turning, name, agent, self._given)
            clone = agent.clone(model=model, tools=tools, handoffs=[], model_settings=settings_of(agent))
            self._clones[id(agent)], self._originals[id(clone)] = clone, agent
            clone.handoffs = [self._handoff(one) for one in agent.handoffs]
            self._record_mcp(agent, path, clone)
        return self._clones[id(agent)]

    def original(self, agent: Agent[Any]) -> Agent[Any]:
        """The agent of a clone."""
        return self._originals.get(id(agent), agent)

    def _tool(self, agent: Agent[Any], path: str, tool: Tool) -> Tool:
        check(agent, tool)
        if not isinstance(tool, FunctionTool) or isinstance(tool.on_invoke_tool, OfRuns):
            return tool
        named = f"{path}.{tool.name}" if path else tool.name
        return recorded(self._turning, named, tool, self._turning.effects.get(tool.name, "external"))

    def _handoff(self, given: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | Handoff[Any, Any]:
        if isinstance(given, Agent):
            return self.of(given)
        made, hand_over = copy.copy(given), given.on_invoke_handoff

        async def to_clone(ctx: RunContextWrapper[Any], text: str) -> Agent[Any]:
            return self.of(cast("Agent[Any]", await hand_over(ctx, text)))

        made.on_invoke_handoff = to_clone
        return made

    def _record_mcp(self, agent: Agent[Any], path: str, clone: Agent[Any]) -> None:
        """Tools of servers are known when they are listed."""
        listed = clone.get_mcp_tools

        async def get_mcp_tools(ctx: RunContextWrapper[Any]) -> list[Tool]:
            return [self._tool(agent, path, one) for one in await listed(ctx)]

        setattr(clone, "get_mcp_tools", get_mcp_tools)  # noqa: B010 - a method of this one instance


def agents_of(start: Agent[Any]) -> list[Agent[Any]]:
    """An agent and those that it can hand over to, as far as that can be seen before it does."""
    found, waiting = [start], list(_targets(start))
    while waiting:
        one = waiting.pop(0)
        if not any(one is known for known in found):
            found.append(one)
            waiting += _targets(one)
    return found


def _targets(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    for one in agent.handoffs:
        if isinstance(one, Agent):
            yield one
        elif one._agent_ref is not None and isinstance(target := one._agent_ref(), Agent):
            yield target


def plain_tools(name: str, start: Agent[Any], effects: Mapping[str, Effect]) -> list[Brought]:
    """The plain tools that an agent has now, and those that it can hand over to. Raises Refused for what cannot run."""
    tools: dict[str, Brought] = {}
    found: set[str] = set()
    for agent in agents_of(start):
        check_agent(agent)
        path = _path(start, agent)
        for tool in agent.tools:
            check(agent, tool)
            if not isinstance(tool, FunctionTool):
                continue
            if isinstance(tool.on_invoke_tool, OfRuns):
                if tool.name in effects:
                    raise Refused(
                        what=f"effects={{{tool.name!r}: …}} of {name}", why="it is registered with its effect"
                    )
                continue
            found.add(tool.name)
            named = f"{path}.{tool.name}" if path else tool.name
            tools[named] = plain(name, named, tool, effects.get(tool.name, "external"))
    unknown = set(effects) - found
    if unknown and not any(agent.mcp_servers for agent in agents_of(start)):
        raise Refused(what=f"effects={{{min(unknown)!r}: …}} of {name}", why=f"it has no such tool; {sorted(found)}")
    return list(tools.values())


def check_agent(agent: Agent[Any]) -> None:
    """Raises Refused for an agent whose tools are not those that it says, as in a sandbox of the SDK."""
    if type(agent).get_all_tools is not Agent.get_all_tools:
        raise Refused(what=f"the {type(agent).__name__} {agent.name}", why="its own tools would not be recorded")


def check(agent: Agent[Any], tool: Tool) -> None:
    """Raises Refused for a tool whose calls could not be recorded."""
    what = f"the tool {tool.name!r} of {agent.name}"
    if isinstance(tool, FunctionTool):
        if isinstance(tool.on_invoke_tool, OfRuns) and tool.needs_approval:
            raise Refused(what=f"needs_approval of {what}", why="it is registered; say approval= there")
        if tool._is_agent_tool:
            raise Refused(what=what, why="what that agent does would not be recorded; say tool_of(agent(app, …))")
    elif not isinstance(tool, _HOSTED):
        raise Refused(what=what, why=f"a {type(tool).__name__} acts here, and is not recorded; make it a function tool")
    elif isinstance(tool, HostedMCPTool) and tool.tool_config.get("require_approval", "always") != "never":
        raise Refused(what=what, why="the provider would ask for approvals; say require_approval='never'")


def _path(start: Agent[Any], agent: Agent[Any]) -> str:
    """What its operations are named by, beside the name of the agent that began."""
    return "" if agent is start else agent.name.replace("/", "_")
