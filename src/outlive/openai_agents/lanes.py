"""What one agent does in one turn, or in one run of the SDK's runner: whose calls are whose, and in which scopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar

from agents import ModelResponse

from outlive.engine.definition import ToolSpec
from outlive.engine.guest import Guest
from outlive.engine.run import Run
from outlive.harness.ledger import Ledger
from outlive.model.approval import Approval
from outlive.model.operation import Effect


class Turning:
    """What is recorded of it. The calls of a response have scopes of their own until the next request, or the end."""

    def __init__(
        self, run: Run[object], guest: Guest, agent: str, tools: Mapping[str, ToolSpec], effects: Mapping[str, Effect],
        approval: Approval,
    ) -> None:  # fmt: skip
        self.run, self.guest, self.effects = run, guest, effects
        self.ledger = Ledger(guest, agent, tools, approval)
        self.response: ModelResponse | None = None
        self._open = AsyncExitStack()

    async def open(self, calls: Sequence[str]) -> None:
        """Open a scope for each call of a response."""
        await self._open.enter_async_context(self.guest.lanes(calls))

    async def close(self) -> None:
        """The calls of the last response have ended."""
        done, self._open = self._open, AsyncExitStack()
        await done.aclose()


driving: ContextVar[Turning | None] = ContextVar("outlive_openai_agents", default=None)
