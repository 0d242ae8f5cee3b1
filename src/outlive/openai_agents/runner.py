"""`DurableRunner`: the SDK's runner inside a function agent of ours, call by call in the window of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from agents import Agent, RunConfig, RunHooks, Runner, RunResult, RunState
from agents.items import TResponseInputItem
from agents.memory import Session
from agents.run import DEFAULT_MAX_TURNS
from agents.run_error_handlers import RunErrorHandlers

from outlive.app.outlive import Outlive
from outlive.engine.definition import ToolSpec
from outlive.engine.guest import Guest
from outlive.engine.operation import sending
from outlive.engine.run import Run, running
from outlive.harness.units import by_name
from outlive.model.approval import Approval
from outlive.model.errors import Refused, ScopeError
from outlive.model.operation import Effect
from outlive.openai_agents.lanes import Turning, driving
from outlive.openai_agents.wiring import Wiring, agents_of, plain_tools

C = TypeVar("C")
D = TypeVar("D")

APPROVER = Approval(role="approver")


class DurableRunner:
    """Runs agents of the SDK in a run: `runner = DurableRunner(app, triage)`, then `await runner.run(triage, …)`.

    Requests to models and calls of tools are recorded, and after a crash answer from the log. The agents that are named
    here have their tools registered, so that people can edit the arguments of a call that they approve; an agent that
    is made later can be run too. `effects` says what repeating a plain tool would do; one that is not named is
    *external*. What the SDK calls *needs approval* waits for people as `approval` says, and interrupts nothing.
    Raises Refused for tools whose calls could not be recorded.
    """

    def __init__(
        self, app: Outlive[D], *agents: Agent[Any], effects: Mapping[str, Effect] | None = None,
        approval: Approval = APPROVER,
    ) -> None:  # fmt: skip
        self._effects, self._approval, self._config = dict(effects or {}), approval, RunConfig()
        self._tools = {}
        known = [one.name for one in agents]
        if len(set(known)) < len(known):
            raise Refused(what="two agents of one name", why="what they do is recorded under it")
        for one in agents:
            own = {tool.name for each in agents_of(one) for tool in each.tools}
            for tool in plain_tools(one.name, one, {name: e for name, e in self._effects.items() if name in own}):
                app.registry.add_tool(tool)
                self._tools[tool.name] = tool
            app.registry.unnamed.append(partial(self._by_name, one.name))

    def _by_name(self, agent: str, tool: str) -> ToolSpec | None:
        return by_name(agent, tool, self._effects, tools=True)

    async def run(  # noqa: PLR0913 - as the SDK's runner is called
        self, starting_agent: Agent[C], input: str | list[TResponseInputItem] | RunState[C], *,
        context: C | None = None, max_turns: int | None = DEFAULT_MAX_TURNS, hooks: RunHooks[C] | None = None,
        run_config: RunConfig | None = None, error_handlers: RunErrorHandlers[C] | None = None,
        previous_response_id: str | None = None, auto_previous_response_id: bool = False,
        conversation_id: str | None = None, session: Session | None = None,
    ) -> RunResult:  # fmt: skip
        """What `Runner.run` does, with the same arguments. Nothing is traced, and `interruptions` is always empty.

        Raises ScopeError outside of runs and in tools and steps of a run, Refused for a RunState: whoever holds one
        could say that a call was approved, or already made; a run goes on by itself.
        """
        if isinstance(input, RunState):
            raise Refused(what="a RunState as input", why="it is not trusted; a run goes on from its own log")
        guest, turning = self._turning(starting_agent.name)
        wiring = Wiring(turning, starting_agent, run_config or self._config)

        async def work() -> RunResult:
            token = driving.set(turning)
            try:
                return await Runner.run(
                    wiring.of(starting_agent), input, context=context, max_turns=max_turns, hooks=hooks,
                    run_config=wiring.config, error_handlers=error_handlers, previous_response_id=previous_response_id,
                    auto_previous_response_id=auto_previous_response_id, conversation_id=conversation_id,
                    session=session,
                )  # fmt: skip
            finally:
                await turning.close()
                driving.reset(token)

        result = await guest.host(work())
        return replace_last(result, wiring.original(result.last_agent))

    def _turning(self, name: str) -> tuple[Guest, Turning]:
        run: Run[object] | None = running.get(None)
        if run is None or sending.get() is not None or driving.get() is not None:
            raise ScopeError(asked="DurableRunner.run outside the code of an agent of a run", line="DurableRunner.run")
        guest = Guest(run)
        return guest, Turning(run, guest, name, self._tools, self._effects, self._approval)


def replace_last(result: RunResult, agent: Agent[Any]) -> RunResult:
    """The result with the agent as it was given, for whoever goes on with it."""
    return replace(result, _last_agent=agent)
