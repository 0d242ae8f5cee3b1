"""The loop of a pydantic-ai agent in a run, turn by turn: one model request, the tools that it asks for, a commit.

Each turn is a run of the agent of its own that goes on from the conversation so far, live as after a crash, so that the
two cannot differ. Its calls leave the replay window when it is committed: what has to be done again after a crash,
and what a change of the code can break, is one turn. An agent that is used inside another one commits nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from pydantic import BaseModel, JsonValue
from pydantic_ai import Agent
from pydantic_ai._agent_graph import CallToolsNode, ModelRequestNode
from pydantic_ai.direct import model_request
from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, infer_model
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
from outlive.pydantic_ai.ledger import ContextTooLong, Ledger
from outlive.pydantic_ai.messages import REF, Json, brief, lengthen, read, response_of, shorten

driving: ContextVar[Ledger | None] = ContextVar("outlive_pydantic_ai", default=None)

Choose = Callable[[Sequence[ModelMessage]], str]


class Turn(BaseModel):
    """What a turn has added to the conversation, and what the next one has to know of it."""

    added: list[dict[str, JsonValue]] = []
    retries: dict[str, int] = {}
    output_retries: int = 0
    kept_from: int = 0
    """Where the messages begin that are handed over; those before, but for the first one, are in the last summary."""


class Compact(BaseModel):
    """When a long conversation is summed up for the model, and how. What is in the log stays whole.

    When the provider has counted `at_tokens` in a request, and when it says that one is too long, all but the last
    `keep` exchanges give way to a summary that a model makes of them: that of the role *compact*, or the agent's own.
    """

    at_tokens: int = 100_000
    keep: int = 10
    prompt: str = (
        "Sum up this conversation for whoever goes on with it. Keep the task, every decision, open point, name, number"
        " and identifier. Write the summary only."
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """How an agent is driven."""

    name: str
    agent: Agent[Any, Any]
    tools: Mapping[str, ToolSpec]
    effects: Mapping[str, Effect]
    models: Mapping[str, Model | str]
    choose: Choose | None
    approval: Approval
    limits: UsageLimits
    stream: bool
    compact: Compact | None


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
        self._summary = ""

    async def committed(self, prompt: str) -> object:
        """Go on to the end, with a commit after each turn."""
        turns, fresh = self._run.turns(Turn()), True
        async for turn in turns:
            if fresh and turns.number:
                await self._recall()
            fresh = False
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
        """In a task of its own: a turn, on a shorter view of the conversation where the model takes no longer one."""
        token = driving.set(ledger)
        try:
            if self._settings.compact is not None and _full(self._messages, self._settings.compact):
                await self._shorten(ledger, turn)
            try:
                return await self._step(ledger, number, prompt, turn)
            except ContextTooLong:
                if self._settings.compact is None or not await self._shorten(ledger, turn):
                    raise
                return await self._step(ledger, number, prompt, turn)
        finally:
            driving.reset(token)

    async def _step(self, ledger: Ledger, number: int, prompt: str, turn: Turn) -> _Ended | list[ModelMessage]:
        """Let pydantic-ai make one request and call the tools that are asked for."""
        settings, view = self._settings, self._view(turn)
        models = {role: _made(one) if isinstance(one, str) else one for role, one in settings.models.items()}
        durability = Durability(ledger, self._run.id, models, stream=settings.stream)
        model = settings.choose(self._messages) if settings.choose is not None else None
        async with settings.agent.iter(
            None if view else prompt, message_history=view or None, model=model, deps=self._run.deps,
            usage=replace(self._usage), usage_limits=settings.limits, run_id=f"{self._run.id}/{number}",
            conversation_id=self._run.id, capabilities=[durability], model_settings={"max_retries": 0},
            infer_name=False,
        ) as agent_run:  # fmt: skip
            state, node, first = agent_run.ctx.state, agent_run.next_node, None
            state.output_retries_used, state.run_step = turn.output_retries, number
            while not isinstance(node, CallToolsNode):
                if isinstance(node, ModelRequestNode) and first is None:
                    first = node.request
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
            opening = [] if view or first is None else [first]
            return [*opening, node.model_response, after.request]

    def _view(self, turn: Turn) -> list[ModelMessage]:
        """What pydantic-ai is handed: the conversation, or what opened it, a summary, and its last part."""
        if not turn.kept_from:
            return list(self._messages)
        opening = self._messages[0]
        assert isinstance(opening, ModelRequest)
        summary = UserPromptPart(f"{_SUMMARY}\n\n{self._summary}")
        return [replace(opening, parts=[*opening.parts, summary]), *self._messages[turn.kept_from :]]

    async def _shorten(self, ledger: Ledger, turn: Turn) -> bool:
        """Put a summary in the place of all but the last messages, for what follows. False: nothing can be left out.

        The conversation in the log stays as it is; the summary is the outcome of an operation of its own.
        """
        compact = self._settings.compact
        assert compact is not None
        kept_from = len(self._messages) - 2 * compact.keep
        kept_from = next((one for one in range(max(kept_from, 1), len(self._messages)) if self._responds(one)), 0)
        if kept_from <= max(turn.kept_from, 1):
            return False
        view = self._view(turn)
        left_out = view[: len(view) - (len(self._messages) - kept_from)]
        model = self._settings.models.get("compact") or self._settings.agent.model
        assert model is not None
        asked = ModelRequest(parts=[UserPromptPart(f"{compact.prompt}\n\n{_spoken(left_out)}")])

        async def body() -> object:
            response = await model_request(model, [asked], model_settings={"max_retries": 0})
            return JSON_CODEC.dump(ModelResponse, response)

        what = f"messages {turn.kept_from} to {kept_from - 1}"
        said = await ledger.model(f"{ledger.agent}.compact", _name(model), what, body)
        self._summary, turn.kept_from = response_of(cast(Json, said)).text or "", kept_from
        return True

    def _responds(self, place: int) -> bool:
        return isinstance(self._messages[place], ModelResponse)

    def _written(self, message: ModelMessage, ledger: Ledger) -> Json:
        """A message as the commit has it: a response that is recorded as it is, only by name."""
        whole = brief(message)
        if isinstance(message, ModelResponse):
            recorded = self._guest.outcome(ledger.response)
            return {REF: ledger.response} if recorded and json.loads(recorded).get("response") == whole else whole
        outcomes = {call: (key, self._guest.outcome(key)) for call, key in ledger.keys.items()}
        return shorten(whole, outcomes)

    async def _recall(self) -> None:
        """Read the conversation from the log, to where the present turn begins."""
        told, self._summary = await recalled(self._guest, f"{self._settings.name}.compact")
        self._messages = read(told)
        for message in self._messages:
            if isinstance(message, ModelResponse):
                self._usage.incr(message.usage)
                self._usage.requests += 1


_SUMMARY = "This conversation was longer. A summary of what was before the messages that follow:"


def _full(messages: Sequence[ModelMessage], compact: Compact) -> bool:
    """Whether the last request was as long as is allowed, as the provider has counted."""
    last = next((one for one in reversed(messages) if isinstance(one, ModelResponse)), None)
    return last is not None and last.usage.input_tokens >= compact.at_tokens


def _spoken(messages: Sequence[ModelMessage]) -> str:
    """Messages as a text that a model can sum up."""
    return "\n".join(json.dumps(brief(one), ensure_ascii=False) for one in messages)


@cache
def _made(model: str) -> Model:
    """The model of a name, made when it is needed first: it may want a key that only workers have."""
    return infer_model(model)


def _name(model: object) -> str:
    return str(getattr(model, "model_name", model))


async def recalled(guest: Guest, compact: str) -> tuple[list[Json], str]:
    """The messages of all turns that are committed, as they were, and the last summary among them: the outcome of an
    operation `compact`.
    """
    state, told, summary, latest = Fold(), list[Json](), "", ""
    async for entry in guest.recorded():
        fact = kinds.read(entry)
        if isinstance(fact, kinds.Turn) and entry.payload is not None:
            outcomes = {key: call.payload for key, call in state.keys.items() if call.payload}
            told += [lengthen(one, outcomes) for one in Turn.model_validate_json(entry.payload).added]
            summary = latest
        step(state, entry.seq, fact, entry.scope, entry.key, entry.payload)
        call = state.sent(getattr(fact, "operation", ""))
        if call is not None and call.name == compact and entry.payload and isinstance(fact, kinds.Outcome):
            latest = response_of(json.loads(entry.payload)["response"]).text or ""
    return told, summary


def _retries(manager: Any) -> dict[str, int]:
    """How often each tool has failed in a row, as the next step counts it."""
    if manager.ctx is None:
        return {}
    counts = {name: count for name, count in manager.ctx.retries.items() if name not in manager.succeeded_tools}
    return counts | {name: manager.ctx.retries.get(name, 0) + 1 for name in manager.failed_tools}
