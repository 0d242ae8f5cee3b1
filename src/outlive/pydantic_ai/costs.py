"""What the model requests of a run came to, by agent and role, as its log says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from outlive.app.outlive import Outlive
from outlive.log import kinds
from outlive.log.fold import Fold, step
from outlive.model.errors import UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.pydantic_ai.ledger import is_of_a_model

D = TypeVar("D")
_PAGE = 1000


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
        if "cost" in recorded:
            self.cost += Decimal(recorded["cost"])
        else:
            self.unpriced += 1


async def spent(app: Outlive[D], run: str, /, *, tenant: str = "default") -> list[Spent]:
    """What a run has spent on models up to now, by the name of their operations. Raises UnknownRun."""
    row = await app.opened.run(Tenant(tenant), RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    state, after = Fold(), -1
    found: dict[str, Spent] = {}
    while page := await app.opened.entries(row.tenant, row.id, after=after, limit=_PAGE):
        for entry in page:
            fact = kinds.read(entry)
            step(state, entry.seq, fact, entry.scope, entry.key, entry.payload)
            call = state.sent(getattr(fact, "operation", ""))
            if call is None or not is_of_a_model(call.name):
                continue
            one = found.setdefault(call.name, Spent(call.name))
            if isinstance(fact, kinds.InDoubt):
                one.lost += 1
            elif isinstance(fact, kinds.Outcome) and fact.status == "succeeded" and entry.payload is not None:
                one.add(json.loads(entry.payload))
        after = page[-1].seq
    return list(found.values())
