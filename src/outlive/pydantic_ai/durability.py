"""The capability that sends an agent's model requests and tool calls through the run's log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, cast

from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CallableOperationBackend,
    CapabilityOperationId,
    DurabilityEngineSpec,
    DurableOperationId,
    EventStreamHandlerId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.messages import AgentStreamEvent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext

from outlive.engine import streaming
from outlive.harness.units import model_name
from outlive.pydantic_ai.ledger import Body, Ledger

KEY = "outlive"
"""The metadata of a tool under which `False` says that it is in the log by itself."""


class Names:
    """What operations are called in the log. Persisted: a change of these makes runs under way diverge."""

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def operation_name(self, operation_id: DurableOperationId) -> str:
        """The name without what only a call knows."""
        match operation_id:
            case ModelRequestId(model_id=model_id):
                return model_name(self._agent, None if model_id == "default" else model_id)
            case CapabilityOperationId(capability_id=capability, operation=operation):
                return f"{self._agent}.{capability}.{operation}"
            case _:
                what = type(operation_id).__name__.removesuffix("Id")
                return f"{self._agent}.{getattr(operation_id, 'toolset_id', '')}.{what}"

    def invocation_name(self, operation_id: DurableOperationId, *, label: str | None) -> Any:
        """The same, for one call."""
        return _Name(self.operation_name(operation_id))


class _Name:
    def __init__(self, name: str) -> None:
        self.operation_name, self.display_name = name.replace("/", "_")[:200], None


class Backend(CallableOperationBackend[dict[str, Any]]):
    """Executes each unit as a call of the run."""

    def __init__(self, ledger: Ledger) -> None:
        config: RoleBasedOperationConfig[dict[str, Any]] = RoleBasedOperationConfig(
            model={}, event={}, capability={}, tool={}, resolve_tool=_inline_or_not
        )
        super().__init__(namer=Names(ledger.agent), config=config)
        self._ledger = ledger

    async def execute(
        self, *, operation_id: DurableOperationId, name: str, body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...], config: dict[str, Any],
    ) -> object:  # fmt: skip
        """See the base. What is recorded is returned without doing it again."""
        work = cast(Body, body)
        match operation_id:
            case ModelRequestId(model_name=model):
                _, messages, settings, parameters, _ = cache_key
                prompt = self._ledger.guest.digest(_prompt(messages, settings, parameters))
                return await self._ledger.request(name, model, prompt, work)
            case ToolsetCallToolId():
                tool_name, given, context, tool = cache_key
                arguments, ctx = cast("dict[str, Any]", given), cast("RunContext[Any]", context)
                return await self._ledger.call(str(tool_name), cast(Any, tool), arguments, ctx, work)
            case EventStreamHandlerId():
                return await body()
            case _:
                return await self._ledger.unit(name, work)


def _inline_or_not(operation_id: DurableOperationId, tool: Any, name: str) -> Any:
    """Registered tools are calls of the run by themselves; validators are plain code."""
    metadata = tool.tool_def.metadata if tool is not None else None
    if metadata is not None and metadata.get(KEY) is False:
        return False
    return {} if isinstance(operation_id, ToolsetCallToolId) or tool is None else False


def _prompt(messages: Any, settings: Any, parameters: Any) -> str:
    """What a request says besides its messages: instructions, tools, settings."""
    given = cast(ModelRequestParameters, parameters)
    said = [
        getattr(messages[-1], "instructions", None) if messages else None,
        sorted((one.name, one.description, one.parameters_json_schema) for one in given.function_tools),
        sorted((one.name, one.description, one.parameters_json_schema) for one in given.output_tools),
        settings,
    ]
    return json.dumps(said, sort_keys=True, default=str)


async def _stream(ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
    """Let followers of the run see text while the model writes it."""
    async for event in events:
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            streaming.stream(event.part.content)
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            streaming.stream(event.delta.content_delta)


class Durability(BaseDurabilityCapability[Any]):
    """One agent in one run. `agent` of this package makes it; it is in no agent of yours."""

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Outlive", durable_unit_noun="operation", durable_container_noun="run", codec=JSON_CODEC,
        tool_config_key=KEY,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
    )  # fmt: skip

    def __init__(self, ledger: Ledger, run: str, models: Mapping[str, Model], *, stream: bool) -> None:
        super().__init__(models=models, name=ledger.agent, event_stream_handler=_stream if stream else None)
        self._ledger, self._run = ledger, run

    @property
    def in_durable_context(self) -> bool:
        """Always: it exists in a run alone."""
        return True

    def get_durable_operation_backend(self) -> Backend:
        """The units as calls of the run."""
        return Backend(self._ledger)

    def get_default_run_id(self) -> str:
        """The same on every replay."""
        return self._run

    def get_default_conversation_id(self, run_id: str) -> str:
        """The same on every replay."""
        return conversation_id_from_run_id(self._run)

    async def get_run_start_time(self, run_id: str) -> datetime:
        """The same on every replay."""
        return self._ledger.guest.started_at

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:  # fmt: skip
        """What asks for an approval is let through to its call, which cannot be sent without one."""
        if not requests.approvals:
            return None
        return DeferredToolResults(approvals={call.tool_call_id: True for call in requests.approvals})
