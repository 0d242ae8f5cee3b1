"""One compensation: an operation of the rollback's own, with intent, retries, look-ups and doubt like any other.

Its key follows from the operation that it undoes: whichever rollback sends it, the other side can tell that it is the
same. One that fails is not given up: the rollback is blocked until a person lets it be tried again.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from outlive.engine.attempt import Attempt
from outlive.engine.calls import Asked
from outlive.engine.definition import ToolSpec
from outlive.engine.failures import writable
from outlive.engine.lineage import Source, Standing
from outlive.engine.operation import Facts, Operation, Original
from outlive.engine.scope import Parked, Scope
from outlive.engine.send import Policy, Send
from outlive.log.canonical import digest
from outlive.log.fold import Call, Sent


class Undo(Send):
    """Drives what compensates one operation. `blocked` says what is left while it cannot go on."""

    def __init__(
        self, attempt: Attempt, scope: Scope, tool: ToolSpec, asked: Asked, key: str, original: Original,
        blocked: Callable[[str], str],
    ) -> None:  # fmt: skip
        super().__init__(attempt, scope, tool, Policy(tool.policy.timeout, tool.policy.retry), asked, key, {})
        self.compensates = original.id
        self._original, self._blocked = original, blocked

    def text(self) -> str:
        """What is undone, in the place of arguments."""
        return json.dumps({"operation": self._original.id, "run": self._original.run_id, "tool": self._original.tool})

    def operation(self, sent: Sent, number: int, *, send_until: float | None) -> Operation[object]:
        """With the operation that is undone."""
        facts = Facts(sent.id, sent.key, number, {}, dict(sent.notes), sent.send_by)
        return Operation(
            self.attempt, self.tool, self.attempt.kit.deps, facts, send_until=send_until, scope=self.scope,
            original=self._original,
        )  # fmt: skip

    async def standing(self, call: Call | None, source: Source | None = None) -> Standing:
        """No other run does the same but a rollback of the same run, which was looked at before."""
        return Standing(digest(self.attempt.key, b"compensation", self._original.id.encode()))

    async def give_up(self, call: Call, sent: Sent) -> None:
        """Nobody does, but a person: the rest waits for it."""
        error = f"{call.error.type}: {call.error.message}" if call.error else "it did not happen"
        detail = writable(self._blocked(f"{self.asked.shown} failed: {error}"))
        await self.attempt.park(self.scope, Parked("a person decides", block="compensation failed", detail=detail))
