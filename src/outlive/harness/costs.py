"""What the model requests of a run came to, by agent and role, as its log says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from outlive.harness.units import is_of_a_model
from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.log.fold import Call, Fold, step


@dataclass(slots=True)
class Spent:
    """The requests to one model: `name` is that of their operations, such as `researcher.model.plan`.

    `cost` is in US dollars, of the `requests` but for those of `unpriced`, whose model genai-prices does not know.
    `lost` are requests whose answer never came to the log: they may have been paid for, and are in no other figure.
    """

    name: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0
    lost: int = 0

    def add(self, recorded: dict[str, Any]) -> None:
        """A request has its response."""
        usage = recorded["response"].get("usage", {})
        self.requests += 1
        self.input_tokens += usage.get("input_tokens", 0)
        self.output_tokens += usage.get("output_tokens", 0)
        if usage.get("cost") is not None:
            self.cost += Decimal(str(usage["cost"]))
        else:
            self.unpriced += 1


async def spent(entries: AsyncIterable[Entry]) -> list[Spent]:
    """What a log tells of requests to models, by the name of their operations."""
    state = Fold()
    found: dict[str, Spent] = {}
    async for entry in entries:
        fact = kinds.read(entry)
        before = state.sent(getattr(fact, "operation", ""))
        # What may be repeated is sent again at once after its worker was lost, without a word on the last attempt.
        resent = isinstance(fact, kinds.Intent) and before is not None and _pending(before)
        step(state, entry.seq, fact, entry.scope, entry.key, entry.payload)
        call = state.sent(getattr(fact, "operation", ""))
        if call is None or not is_of_a_model(call.name):
            continue
        one = found.setdefault(call.name, Spent(call.name))
        if isinstance(fact, kinds.InDoubt) or resent:
            one.lost += 1
        elif isinstance(fact, kinds.Outcome) and fact.status == "succeeded" and entry.payload is not None:
            recorded = json.loads(entry.payload)
            if isinstance(recorded, dict) and isinstance(recorded.get("response"), dict):
                one.add(recorded)
    return [one for one in found.values() if one.requests or one.lost]


def _pending(call: Call) -> bool:
    return call.sent is not None and call.sent.status == "pending"
