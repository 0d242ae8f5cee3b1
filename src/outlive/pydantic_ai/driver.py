"""A turn of a pydantic-ai agent in a run: a run of the agent of its own, on what it is handed of the conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic_ai import Agent
from pydantic_ai._agent_graph import CallToolsNode, ModelRequestNode
from pydantic_ai.direct import model_request
from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.usage import RunUsage, UsageLimits
from pydantic_graph import End

from outlive.engine.definition import ToolSpec
from outlive.engine.run import Run
from outlive.harness.conversation import COMPACTED, Compacted, Turn, recalled
from outlive.harness.loop import Ended, Loop
from outlive.harness.units import Json
from outlive.model.approval import Approval
from outlive.pydantic_ai.durability import Durability
from outlive.pydantic_ai.ledger import ContextTooLong, Ledger
from outlive.pydantic_ai.messages import plain, read, response_of, written
from outlive.pydantic_ai.servers import Effects
from outlive.pydantic_ai.view import Compact, counted, near, results, spoken, view

driving: ContextVar[Ledger | None] = ContextVar("outlive_pydantic_ai", default=None)

Choose = Callable[[Sequence[ModelMessage]], str]
_usage: TypeAdapter[RunUsage] = TypeAdapter(RunUsage)
NEAR_LIMIT = "near-limit"


@dataclass(frozen=True, slots=True)
class Settings:
    """How an agent is driven."""

    name: str
    agent: Agent[Any, Any]
    tools: Mapping[str, ToolSpec]
    effects: Effects
    models: Mapping[str, Model | str]
    choose: Choose | None
    approval: Approval
    limits: UsageLimits
    stream: bool
    compact: Compact | None


class NearLimit(BaseModel):
    """An agent has used four fifths of what a limit allows its run."""

    agent: str
    limit: str
    used: str
    of: str


class Conversation(Loop):
    """One agent's conversation in one run."""

    def __init__(self, run: Run[Any], settings: Settings) -> None:
        super().__init__(run)
        self._settings = settings
        self._turns: list[list[ModelMessage]] = []
        self._messages: list[ModelMessage] = []
        self._usage, self._told = RunUsage(), RunUsage()
        self._summary = ""

    async def turn(self, number: int, prompt: str, turn: Turn) -> Ended | None:
        """One turn. What it has added is in `turn` then, for the commit."""
        settings = self._settings
        ledger = Ledger(self.guest, settings.name, settings.tools, settings.effects, settings.approval)
        given = await self.guest.host(self._driven(ledger, number, prompt, turn))
        if isinstance(given, Ended):
            return given
        self._add(plain(given))
        turn.added, turn.beside = self._written(given, ledger), self._beside()
        return None

    async def _driven(self, ledger: Ledger, number: int, prompt: str, turn: Turn) -> Ended | list[ModelMessage]:
        """In a task of its own: a turn, on a shorter view of the conversation where the model takes no longer one."""
        token, compact = driving.set(ledger), self._settings.compact
        try:
            await self._warn(turn)
            if compact is not None and counted(self._messages) >= compact.at_tokens:
                await self._shorten(ledger, turn, compact.keep, least=max(1, compact.keep // 2))
            return await self._fitting(ledger, number, prompt, turn)
        finally:
            driving.reset(token)

    async def _step(self, ledger: Ledger, number: int, prompt: str, turn: Turn) -> Ended | list[ModelMessage]:
        """Let pydantic-ai make one request and call the tools that are asked for."""
        settings, preview = self._settings, self._preview
        handed = view(self._turns, turn.kept_from, self._summary, preview, near(self._usage, self._settings.limits))
        models = {role: _made(one) if isinstance(one, str) else one for role, one in settings.models.items()}
        durability = Durability(ledger, self.run.id, models, stream=settings.stream)
        model = settings.choose(self._messages) if settings.choose is not None else None
        async with settings.agent.iter(
            None if handed else prompt, message_history=handed or None, model=model, deps=self.run.deps,
            usage=replace(self._usage), usage_limits=settings.limits, run_id=f"{self.run.id}/{number}",
            conversation_id=self.run.id, capabilities=[durability], model_settings={"max_retries": 0},
            infer_name=False, toolsets=None if preview is None else [results(self._messages, preview)],
        ) as agent_run:  # fmt: skip
            state, node = agent_run.ctx.state, agent_run.next_node
            state.output_retries_used, state.run_step = turn.output_retries, number
            while not isinstance(node, CallToolsNode):
                node = await agent_run.next(cast(Any, node))
            manager = agent_run.ctx.deps.tool_manager
            if manager.ctx is not None:
                manager.ctx.retries.update(turn.retries)
            _check_ids(node.model_response)
            ledger.named = {one.tool_call_id: one.tool_name for one in node.model_response.tool_calls}
            async with self.guest.lanes([one.tool_call_id for one in node.model_response.tool_calls]):
                after = await agent_run.next(node)
            self._usage = agent_run.usage
            if isinstance(after, End):
                return Ended(after.data.output)
            assert isinstance(after, ModelRequestNode)
            turn.output_retries = state.output_retries_used
            turn.retries = _retries(agent_run.ctx.deps.tool_manager)
            return [*agent_run.new_messages(), after.request]

    async def _fitting(self, ledger: Ledger, number: int, prompt: str, turn: Turn) -> Ended | list[ModelMessage]:
        """A turn. It is repeated on a shorter view when the model says that it is too long, once for each decision."""
        compact, shortened = self._settings.compact, False
        while True:
            try:
                return await self._step(ledger, number, prompt, turn)
            except ContextTooLong as refused:
                left = len(self._turns) - turn.kept_from
                keep = min(compact.keep, left // 2) if compact is not None else 0
                shortened = not shortened and await self._shorten(ledger, turn, keep)
                if not shortened:
                    await self.guest.hold("context too long", self._too_long(refused, turn))

    def _too_long(self, refused: ContextTooLong, turn: Turn) -> str:
        taken = counted(self._messages)
        before = f"the last request that it took had {taken} tokens" if taken else "it has taken no request yet"
        handed = view(self._turns, turn.kept_from, self._summary, self._preview, [])
        summed = f", with turns 1 to {turn.kept_from} summed up" if turn.kept_from else ""
        return (
            f"{len(handed)} messages of {len(spoken(handed))} characters were handed over{summed}; {before}: {refused}"
        )

    @property
    def _preview(self) -> int | None:
        return self._settings.compact.preview if self._settings.compact is not None else None

    async def _warn(self, turn: Turn) -> None:
        """Tell followers of limits that are near, of each once."""
        for limit in near(self._usage, self._settings.limits):
            if limit.name not in turn.warned:
                turn.warned.append(limit.name)
                said = NearLimit(agent=self._settings.name, limit=limit.name, used=limit.used, of=limit.of)
                await self.guest.emit(NEAR_LIMIT, said)

    async def _shorten(self, ledger: Ledger, turn: Turn, keep: int, *, least: int = 1) -> bool:
        """Put a summary in the place of all but the last `keep` turns, for what follows. False: it would not be at
        `least` so many turns more than now.

        The conversation in the log stays as it is; that there is a summary, and which, is an event of the run.
        """
        compact, kept_from = self._settings.compact, len(self._turns) - keep
        if compact is None or kept_from < turn.kept_from + least:
            return False
        text = spoken(view(self._turns[:kept_from], turn.kept_from, self._summary, compact.preview, []))
        summary = await self._summed_up(ledger, compact, text)
        if summary is None:
            return False
        before = view(self._turns, turn.kept_from, self._summary, compact.preview, [])
        after = view(self._turns, kept_from, summary, compact.preview, [])
        tokens = counted(self._messages)
        expected = tokens * len(spoken(after)) // max(1, len(spoken(before)))
        told = Compacted(
            agent=self._settings.name, first=turn.kept_from + 1, last=kept_from, summary=summary,
            tokens_before=tokens, tokens_after=expected,
        )  # fmt: skip
        await self.guest.emit(COMPACTED, told)
        self._summary, turn.kept_from = summary, kept_from
        return True

    async def _summed_up(self, ledger: Ledger, compact: Compact, text: str) -> str | None:
        """What a model makes of it; of its beginning and end where all of it is too long. None: of those as well."""
        model = self._settings.models.get("compact") or self._settings.agent.model
        assert model is not None
        for said in (text, f"{text[: len(text) // 4]}\n[…]\n{text[-len(text) // 4 :]}"):
            asked = ModelRequest(parts=[UserPromptPart(f"{compact.prompt}\n\n{said}")])

            async def body() -> object:
                response = await model_request(model, [asked], model_settings={"max_retries": 0})  # noqa: B023 - awaited within this round
                return JSON_CODEC.dump(ModelResponse, response)

            try:
                name = f"{ledger.agent}.compact"
                recorded = await ledger.request(name, _name(model), self.guest.digest(compact.prompt), body)
            except ContextTooLong:
                continue
            response = response_of(recorded)
            self._usage.incr(response.usage)
            self._usage.requests += 1
            return response.text or ""
        return None

    def _written(self, messages: list[ModelMessage], ledger: Ledger) -> list[Json]:
        """Messages as the commit has them: what is recorded as it is only by name."""
        recorded = {key: json.loads(self.guest.outcome(key) or "{}").get("response") for key in ledger.responses}
        outcomes = {call: (key, self.guest.outcome(key)) for call, key in ledger.keys.items()}
        return written(messages, recorded, outcomes)

    def _add(self, messages: list[ModelMessage]) -> None:
        self._turns.append(messages)
        self._messages += messages
        for message in messages:
            if isinstance(message, ModelResponse):
                self._told.incr(message.usage)
                self._told.requests += 1

    def _beside(self) -> dict[str, JsonValue]:
        """What was used that is in no response of the conversation."""
        used: dict[str, JsonValue] = _usage.dump_python(self._usage - self._told, mode="json")
        return {name: one for name, one in used.items() if one}

    async def recall(self, turn: Turn) -> None:
        """Read the conversation from the log, to where the present turn begins."""
        found = await recalled(self.guest)
        for messages in read(found.turns):
            self._add(messages)
        self._summary = found.compacted.summary if found.compacted is not None else ""
        self._usage = self._told + _usage.validate_python(turn.beside)


def _check_ids(response: ModelResponse) -> None:
    """Raises UnexpectedModelBehavior where two calls have one id: nobody could tell what became of which."""
    ids = [one.tool_call_id for one in response.tool_calls]
    if len(set(ids)) < len(ids):
        raise UnexpectedModelBehavior(f"two calls of one response have one id: {sorted(ids)}")


@cache
def _made(model: str) -> Model:
    """The model of a name, made when it is needed first: it may want a key that only workers have."""
    return infer_model(model)


def _name(model: object) -> str:
    return str(getattr(model, "model_name", model))


def _retries(manager: Any) -> dict[str, int]:
    """How often each tool has failed in a row, as the next step counts it."""
    if manager.ctx is None:
        return {}
    counts = {name: count for name, count in manager.ctx.retries.items() if name not in manager.succeeded_tools}
    return counts | {name: manager.ctx.retries.get(name, 0) + 1 for name in manager.failed_tools}
