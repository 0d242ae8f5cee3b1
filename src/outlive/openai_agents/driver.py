"""A turn of an agent of the SDK in a run: a run of the SDK's runner of its own, on what it is handed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from agents import Agent, MaxTurnsExceeded, RunConfig, Runner
from agents.items import TResponseInputItem

from outlive.engine.definition import ToolSpec
from outlive.engine.run import Run
from outlive.harness.conversation import Turn, recalled
from outlive.harness.loop import SUMMARY, Ended, Loop
from outlive.harness.units import Json, ModelRefused
from outlive.model.approval import Approval
from outlive.model.errors import Refused
from outlive.model.operation import Effect
from outlive.openai_agents.items import read, written
from outlive.openai_agents.lanes import Turning, driving
from outlive.openai_agents.wiring import Wiring, agents_of


@dataclass(frozen=True, slots=True)
class Settings:
    """How an agent is driven."""

    name: str
    agent: Agent[Any]
    tools: Mapping[str, ToolSpec]
    effects: Mapping[str, Effect]
    approval: Approval
    max_turns: int | None
    config: RunConfig


class Conversation(Loop):
    """One agent's conversation in one run."""

    def __init__(self, run: Run[Any], settings: Settings) -> None:
        super().__init__(run)
        self._settings = settings
        self._turns: list[list[Json]] = []
        self._summary = ""

    async def turn(self, number: int, prompt: str, turn: Turn) -> Ended | None:
        """One turn. What it has added is in `turn` then, for the commit."""
        settings = self._settings
        if settings.max_turns is not None and number >= settings.max_turns:
            raise MaxTurnsExceeded(f"Max turns ({settings.max_turns}) exceeded")
        turning = Turning(
            self.run, self.guest, settings.name, settings.tools, settings.effects, settings.approval
        )  # fmt: skip
        given = await self.guest.host(self._driven(turning, prompt, turn))
        if isinstance(given, Ended):
            return given
        turn.added = self._written(given, turning)
        self._turns.append(given)
        return None

    async def _driven(self, turning: Turning, prompt: str, turn: Turn) -> Ended | list[Json]:
        """In a task of its own: a turn. It is blocked, and repeated, when the model says that it is too long."""
        token = driving.set(turning)
        try:
            while True:
                try:
                    return await self._step(turning, prompt, turn)
                except ModelRefused as refused:
                    if not refused.context:
                        raise
                    await turning.close()
                    await self.guest.hold("context too long", f"the model does not take this: {refused.message}")
        finally:
            await turning.close()
            driving.reset(token)

    async def _step(self, turning: Turning, prompt: str, turn: Turn) -> Ended | list[Json]:
        """Let the SDK make one request and call the tools that are asked for."""
        handed = self._view(turn)
        opening: list[Json] = [] if handed else [{"role": "user", "content": prompt}]
        wiring = Wiring(turning, self._settings.agent, self._settings.config)
        given = self._going_on(turn)
        clone, config = wiring.of(given), wiring.config
        if handed:
            clone.input_guardrails = []
            config = replace(config, input_guardrails=None)
        if given.name in turn.called and given.reset_tool_choice:
            clone.model_settings = replace(clone.model_settings, tool_choice=None)
        asked = cast("list[TResponseInputItem]", [*handed, *opening])
        try:
            result = await Runner.run(clone, asked, context=self.run.deps, max_turns=1, run_config=config)
        except MaxTurnsExceeded as over:
            data = over.run_data
            if data is None or turning.response is None:
                raise
            last = wiring.original(data.last_agent)
            turn.agent = "" if last is self._settings.agent else last.name
            if any(one.type == "function_call" for one in turning.response.output) and given.name not in turn.called:
                turn.called.append(given.name)
            return [*opening, *_added([one.to_input_item() for one in data.new_items])]
        if result.interruptions:
            raise Refused(what=f"a turn of {given.name}", why="it was interrupted for an approval that no run can give")
        return Ended(result.final_output)

    def _going_on(self, turn: Turn) -> Agent[Any]:
        """The agent whose turn it is. Another framework, or an older version, may know others: then the first one."""
        return next((one for one in agents_of(self._settings.agent) if one.name == turn.agent), self._settings.agent)

    def _view(self, turn: Turn) -> list[Json]:
        """What is handed over: all of it, or what opened the conversation, a summary, and the last turns."""
        whole = [item for one in self._turns[turn.kept_from :] for item in one]
        if not turn.kept_from or not self._turns:
            return whole
        return [*self._turns[0][:1], {"role": "user", "content": f"{SUMMARY}\n\n{self._summary}"}, *whole]

    def _written(self, items: Sequence[Json], turning: Turning) -> list[Json]:
        """Items as the commit has them: what is recorded as it is only by name."""
        assert turning.response is not None
        outcomes = {call: (key, self.guest.outcome(key) or "null") for call, key in turning.ledger.keys.items()}
        opening = [one for one in items[:1] if one.get("role") == "user"]
        rest = cast("list[TResponseInputItem]", items[len(opening) :])
        return [*opening, *written(rest, (turning.ledger.response, turning.response), outcomes)]

    async def recall(self, turn: Turn) -> None:
        """Read the conversation from the log, to where the present turn begins."""
        found = await recalled(self.guest)
        self._turns = [read(told) for told in found.turns]
        self._summary = found.compacted.summary if found.compacted is not None else ""


def _added(items: Sequence[TResponseInputItem]) -> list[Json]:
    return [cast(Json, dict(cast("Mapping[str, Any]", one))) for one in items]
