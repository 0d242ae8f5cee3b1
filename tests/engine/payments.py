"""Agents that pay after an approval, and a bank that counts: what the tests of approvals play, on either store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, cast

from pydantic import Field

from outlive import Agent, NotSent, Operation, Outlive, Retry, Run
from outlive.app.approvals import Approvals
from outlive.approvals import Approval
from outlive.errors import Rejected
from outlive.model.approval import ApprovalRow, ApprovalStatus
from outlive.model.operation import Effect
from tests.engine.rig import Rig

RUN = "payment"
PAID = [("acme", 4200)]
DAY = timedelta(days=1)


@dataclass
class Bank:
    """What was really moved. `refuses` are attempts that it turns away before anything has happened."""

    moved: list[tuple[str, int]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    refuses: int = 0

    def pay(self, key: str, to: str, cents: int) -> str:
        if self.refuses:
            self.refuses -= 1
            raise NotSent("the bank is closed")
        self.moved.append((to, cents))
        self.keys.append(key)
        return f"paid {cents} to {to}"


Act = Callable[[str, str, int], Awaitable[str]]
Rule = Approval | Callable[..., Approval | None]


def payments(
    bank: Bank, rule: Rule | None = None, *, tool: str = "pay", cents: int = 4200, option: Approval | None = None,
    effect: Effect = "external", twice: bool = False, most: int = 0, act: Act | None = None,
) -> Outlive[None]:  # fmt: skip
    """An application as a release has it: an agent `payer` and a tool; with other words here it is a deploy."""
    one: Outlive[None] = Outlive()
    allowed = Annotated[int, Field(le=most)] if most else int

    async def body(op: Operation[None], to: str, cents: int) -> str:
        return bank.pay(op.key, to, cents) if act is None else await act(op.key, to, cents)

    body.__annotations__["cents"] = allowed
    body.__qualname__ = body.__name__ = tool
    made = one.tool(name=tool, effect=effect, approval=rule, retry=Retry(attempts=3, first=timedelta(seconds=1)))(body)

    async def payer(run: Run[None], to: str) -> str:
        asked = run if option is None else run.options(approval=option)
        try:
            said = await asked.call(made, to, cents)
        except Rejected as rejected:
            return f"rejected: {rejected.reason}"
        return said if not twice else f"{said}, {await asked.call(made, to, cents)}"

    payer.__qualname__ = "payer"
    one.agent()(payer)
    return one


FINANCE = Approval(role="finance", expires=DAY)


def large(cents: int) -> Approval | None:
    """From a certain sum on somebody has to agree."""
    return FINANCE if cents > 1000 else None


class Desk:
    """Where people decide, on the store of a rig."""

    def __init__(self, rig: Rig, app: Outlive[None]) -> None:
        self._rig = rig
        self.app = rig.app(app)
        self.app.roles = app.roles

    @property
    def approvals(self) -> Approvals:
        return self.app.approvals

    async def start(self, id: str = RUN, *, principal: str = "rita", to: str = "acme") -> None:
        await self.app.start(self.payer, to, id=id, principal=principal)

    @property
    def payer(self) -> Agent[str, str]:
        return cast("Agent[str, str]", self.app.registry.agents["payer"])

    async def open(self, *, run: str = RUN, statuses: tuple[ApprovalStatus, ...] = ("asked",)) -> list[ApprovalRow]:
        return await self.approvals.list(run=run, statuses=statuses)

    async def only(self, run: str = RUN) -> ApprovalRow:
        """The one approval that a run waits for."""
        [row] = await self.open(run=run)
        return row

    async def approve(self, *, who: str = "ada", run: str = RUN, **arguments: object) -> ApprovalRow:
        row = await self.only(run)
        return await self.approvals.approve(row.id, who=who, role="finance", arguments=arguments or None)

    async def statuses(self, run: str = RUN) -> list[str]:
        """Of all that a run has asked for; what is still open comes last, as time stands still here."""
        return sorted((row.status for row in await self.open(run=run, statuses=())), key=lambda one: one == "asked")


async def ended(rig: Rig, run: str = RUN) -> str:
    """How a run has ended, by its last entry."""
    entries = await rig.entries(run)
    row = await rig.row(run)
    assert row.status == "succeeded", (row, [f"{one.kind} {one.text}" for one in await rig.lines(run)])
    return str(entries[-1].payload)


async def approvals_of(rig: Rig, run: str = RUN) -> list[str]:
    """The kinds that tell of approvals and sends, in the order of the log."""
    told = {"proposed", "decided", "reminded", "intent", "done", "outcome", "not acted"}
    return [kind for kind in await rig.kinds(run) if kind in told]


class Stops(Bank):
    """A bank at which a worker dies: before it has moved anything, or after."""

    def __init__(self, *, after: bool) -> None:
        super().__init__()
        self.after, self.reached, self.armed = after, asyncio.Event(), True

    async def act(self, key: str, to: str, cents: int) -> str:
        if not self.armed:
            return self.pay(key, to, cents)
        self.armed = False
        if self.after:
            self.pay(key, to, cents)
        self.reached.set()
        await asyncio.Event().wait()
        return "never"
