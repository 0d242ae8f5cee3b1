"""`outlive rollback`: what would be undone, in which order, and what is left; and asking for it."""

from __future__ import annotations

from dataclasses import dataclass

from outlive.app.registry import Registry
from outlive.engine import undoing
from outlive.engine.rollback import Fate, fate, newest_first
from outlive.model.clock import SystemClock
from outlive.model.errors import UnknownRun, WrongState
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import RunRow
from outlive.store.port import Store


@dataclass(frozen=True, slots=True)
class Step:
    """What a rollback does about one operation, and why."""

    operation: OperationRow
    fate: Fate
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rollback of the run would do, newest first. `rollback` is the one that is open, if there is one."""

    row: RunRow
    steps: tuple[Step, ...]
    rollback: str = ""


async def plan(store: Store, registry: Registry, tenant: str, run: str) -> Plan:
    """As things are now: nothing is changed. Raises UnknownRun, WrongState for a run that is a rollback itself."""
    row = await _found(store, tenant, run)
    if row.rolls_back is not None:
        raise WrongState(run=run, status=row.status, wanted="it is a rollback itself")
    agent = registry.agents.get(row.agent)
    steps: list[Step] = []
    for one in newest_first(await store.operations(row.tenant, row.id)):
        name = agent.renamed.get(one.tool, one.tool) if agent is not None else one.tool
        steps.append(Step(one, *fate(one, registry.tool(one.tool) or registry.tool(name))))
    back = next((one.id for one in await store.rollbacks(row.tenant, row.id) if not one.ended), "")
    return Plan(row, tuple(steps), back)


async def ask(store: Store, tenant: str, run: str, *, who: str, why: str) -> tuple[RunRow, RunRow]:
    """The run as it was found, and its rollback. Raises as `undoing.by_person`, and UnknownRun."""
    row = await _found(store, tenant, run)
    return row, await undoing.by_person(store, SystemClock(), row, who, why)


async def _found(store: Store, tenant: str, run: str) -> RunRow:
    row = await store.run(Tenant(tenant), RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    return row
