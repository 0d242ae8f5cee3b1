"""A bank as its observers see it: the ledger that it counts, and its control side where it has one."""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx
from pydantic import BaseModel, TypeAdapter


class Effect(BaseModel):
    """One line of a ledger, as far as every bank has it."""

    charge_id: str
    key: str
    invoice: str
    cents: int


class Ledger(BaseModel):
    """What the bank counted."""

    effects: list[Effect]


class Held(BaseModel):
    """A request that the bank has acted on and keeps waiting for its answer."""

    request: int
    key: str
    invoice: str


_held = TypeAdapter(list[Held])


@dataclass(frozen=True, slots=True)
class Rule:
    """How the bank treats the next request for an invoice."""

    mode: str
    invoice: str


class Witness:
    """Asks a bank. What was in its ledger before does not count."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.controllable = False
        self._http = httpx.AsyncClient(base_url=url, timeout=30, trust_env=False)
        self._before: set[str] = set()

    async def __aenter__(self) -> Self:
        self._before = {effect.charge_id for effect in await self.effects()}
        try:
            self.controllable = (await self._http.get("/control")).is_success
        except httpx.HTTPError:
            self.controllable = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def effects(self) -> list[Effect]:
        answer = (await self._http.get("/ledger")).raise_for_status()
        every = Ledger.model_validate_json(answer.content).effects
        return [effect for effect in every if effect.charge_id not in self._before]

    async def expect(self, *rules: Rule) -> None:
        """Ask for misbehaviour; does nothing with a bank that takes no orders."""
        if self.controllable:
            body = {"rules": [{"mode": rule.mode, "invoice": rule.invoice} for rule in rules]}
            (await self._http.post("/control", json=body)).raise_for_status()

    async def held(self, *, within: float) -> list[Held]:
        """Who is held between act and answer; waits for the first, so long. Empty for a bank that takes no orders."""
        answer = await self._http.get("/control/wait", params={"held": 1, "timeout": within})
        return _held.validate_python(answer.json()["held"]) if answer.is_success else []

    async def release(self, held: Held) -> None:
        (await self._http.post("/control", json={"release": [held.request]})).raise_for_status()
