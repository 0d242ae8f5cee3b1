"""The loop of a pydantic-ai agent in a run, turn by turn: one model request, the tools that it asks for, a commit.

Each turn is a run of the agent of its own that goes on from the conversation so far, live as after a crash, so that the
two cannot differ. Its calls leave the replay window when it is committed: what has to be done again after a crash,
and what a change of the code can break, is one turn. An agent that is used inside another one commits nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent
from pydantic_ai._agent_graph import CallToolsNode, ModelRequestNode
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_graph import End

from outlive.engine.definition import ToolSpec
from outlive.engine.guest import Guest
from outlive.engine.run import Run
from outlive.log import kinds
from outlive.log.fold import Fold, step
from outlive.model.approval import Approval
from outlive.model.operation import Effect
from outlive.pydantic_ai.durability import Durability
from outlive.pydantic_ai.ledger import Ledger
from outlive.pydantic_ai.messages import REF, Json, brief, lengthen, read, shorten

driving: ContextVar[Ledger | None] = ContextVar("outlive_pydantic_ai", default=None)

Choose = Callable[[Sequence[ModelMessage]], str]


class Turn(BaseModel):
    """What a turn has added to the conversation, and what the next one has to know of it."""

    added: list[dict[str, JsonValue]] = []
    retries: dict[str, int] = {}
    output_retries: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """How an agent is driven."""

    name: str
    agent: Agent[Any, Any]
    tools: Mapping[str, ToolSpec]
    effects: Mapping[str, Effect] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)
    choose: Choose | None = None
    approval: Approval = field(default_factory=lambda: Approval(role="approver"))
    limits: UsageLimits = field(default_factory=lambda: UsageLimits(request_limit=None))
    stream: bool = False


@dataclass(frozen=True, slots=True)
class _Ended:
    output: object


class Conversation:
    """One agent's conversation in one run."""

    def __init__(self, run: Run[Any], settings: Settings) -> None:
        self._run, self._settings = run, settings
        self._guest = Guest(run)
        self._messages: list[ModelMessage] = []
        self._usage = RunUsage()

    async def committed(self, prompt: str) -> object:
        """Go on to the end, with a commit after each turn."""
        turns = self._run.turns(Turn())
        read_to = -1
        async for turn in turns:
            if turns.number and read_to < 0:
                await self._recall()
            read_to = turns.number
            ended = await self._turn(turns.number, prompt, turn)
            if ended is not None:
                return ended.output
        raise AssertionError("a loop of turns has no end of its own")

    async def uncommitted(self, prompt: str) -> object:
        """Go on to the end in the window of whoever uses the agent."""
        turn, number = Turn(), 0
        while True:
            ended = await self._turn(number, prompt, turn)
            if ended is not None:
                return ended.output
            number += 1

    async def _turn(self, number: int, prompt: str, turn: Turn) -> _Ended | None:
        """One turn. What it has added is in `turn` then, for the commit."""
        settings = self._settings
        ledger = Ledger(self._guest, settings.name, settings.tools, settings.effects, settings.approval)
        given = await self._guest.host(self._driven(ledger, number, prompt, turn))
        if isinstance(given, _Ended):
            return given
        self._messages += given
        turn.added = [self._written(one, ledger) for one in given]
        return None

    async def _driven(self, ledger: Ledger, number: int, prompt: str, turn: Turn) -> _Ended | list[ModelMessage]:
        """In a task of its own: let pydantic-ai make one request and call the tools that are asked for."""
        settings, token = self._settings, driving.set(ledger)
        durability = Durability(ledger, self._run.id, settings.models, stream=settings.stream)
        before = len(self._messages)
        model = settings.choose(self._messages) if settings.choose is not None else None
        try:
            async with settings.agent.iter(
                None if self._messages else prompt, message_history=list(self._messages) or None, model=model,
                deps=self._run.deps, usage=replace(self._usage), usage_limits=settings.limits,
                run_id=f"{self._run.id}/{number}", conversation_id=self._run.id, capabilities=[durability],
                model_settings={"max_retries": 0}, infer_name=False,
            ) as agent_run:  # fmt: skip
                state = agent_run.ctx.state
                state.output_retries_used, state.run_step = turn.output_retries, number
                node = agent_run.next_node
                while not isinstance(node, CallToolsNode):
                    node = await agent_run.next(cast(Any, node))
                manager = agent_run.ctx.deps.tool_manager
                if manager.ctx is not None:
                    manager.ctx.retries.update(turn.retries)
                async with self._guest.lanes([one.tool_call_id for one in node.model_response.tool_calls]):
                    after = await agent_run.next(node)
                self._usage = agent_run.usage
                if isinstance(after, End):
                    return _Ended(after.data.output)
                assert isinstance(after, ModelRequestNode)
                turn.output_retries = state.output_retries_used
                turn.retries = _retries(agent_run.ctx.deps.tool_manager)
                return [*agent_run.all_messages()[before:], after.request]
        finally:
            driving.reset(token)

    def _written(self, message: ModelMessage, ledger: Ledger) -> Json:
        if isinstance(message, ModelResponse) and self._guest.outcome(ledger.response) is not None:
            return {REF: ledger.response}
        outcomes = {call: (key, self._guest.outcome(key)) for call, key in ledger.keys.items()}
        return shorten(brief(message), outcomes)

    async def _recall(self) -> None:
        """Read the conversation from the log, to where the present turn begins."""
        self._messages = read([one async for one in recalled(self._guest)])
        for message in self._messages:
            if isinstance(message, ModelResponse):
                self._usage.incr(message.usage)
                self._usage.requests += 1


async def recalled(guest: Guest) -> AsyncIterator[Json]:
    """The messages of all turns that are committed, as they were."""
    state = Fold()
    async for entry in guest.recorded():
        fact = kinds.read(entry)
        if isinstance(fact, kinds.Turn) and entry.payload is not None:
            for message in Turn.model_validate_json(entry.payload).added:
                yield lengthen(message, {key: call.payload for key, call in state.keys.items() if call.payload})
        step(state, entry.seq, fact, entry.scope, entry.key, entry.payload)


def _retries(manager: Any) -> dict[str, int]:
    """How often each tool has failed in a row, as the next step counts it."""
    if manager.ctx is None:
        return {}
    counts = {name: count for name, count in manager.ctx.retries.items() if name not in manager.succeeded_tools}
    return counts | {name: manager.ctx.retries.get(name, 0) + 1 for name in manager.failed_tools}
