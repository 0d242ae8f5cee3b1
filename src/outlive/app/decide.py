"""What people decide about runs: what happened to an operation in doubt, and whether a blocked run is tried again."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Literal

from outlive.app.registry import Registry
from outlive.engine import inbox
from outlive.engine.adoption import Acceptance
from outlive.engine.control import Control, find_operation
from outlive.engine.failures import writable
from outlive.log import kinds
from outlive.model.errors import BadArguments, LeaseLost, UndecodableEntry, UnknownRun, WrongState
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import RunRow
from outlive.store.port import RunFilter

_ALL = 1_000_000

Word = Literal["happened", "did-not-happen", "abandon"]


async def resolve(
    control: Control, registry: Registry, tenant: Tenant, run: str, operation: str, decision: Word, *, who: str,
    why: str,
    outcome: str | None = None,
) -> OperationRow:  # fmt: skip
    """Record what a person knows of an operation in doubt; the run goes on by itself then.

    `operation` may be the beginning of its id. *happened* needs the outcome as JSON of the tool's result type.
    Raises UnknownRun, UnknownOperation, NotInDoubt, TooEarly, BadArguments; then nothing is changed.
    """
    row = await _run(control, tenant, run)
    found = await find_operation(control.store, tenant, row.id, operation)
    agent = registry.agents.get(row.agent)
    name = agent.renamed.get(found.tool, found.tool) if agent is not None else found.tool
    payload = _outcome(registry, name, outcome) if decision == "happened" else None
    said = inbox.Decision(found.id, found.attempt, decision, writable(who), writable(why), payload)
    await control.resolve(row, found, said)
    return found


async def retry(control: Control, tenant: Tenant, run: str, *, who: str, why: str) -> None:
    """Let a blocked run be tried again. Raises UnknownRun, WrongState."""
    await control.retry(await _run(control, tenant, run), who=who, why=why)


async def adopt(control: Control, tenant: Tenant, run: str, wish: Acceptance) -> kinds.Adopted:
    """Accept that the code differs from the log at a step. Raises UnknownRun, WrongState, NotAdoptable."""
    return await control.adopt(await _run(control, tenant, run), wish)


async def retry_blocked(
    control: Control, tenant: Tenant, *, who: str, why: str, reason: str = "", agent: str = ""
) -> list[RunRow]:
    """Let all runs that are blocked now (of a reason, of an agent) be tried again; returns those that were.

    One that somebody else has claimed or retried meanwhile is left out.
    """
    which = RunFilter(statuses=("blocked",), agent=agent, reason=reason, limit=_ALL)
    done: list[RunRow] = []
    for row in await control.store.runs(tenant, which):
        with suppress(WrongState, LeaseLost):
            await control.retry(row, who=who, why=why)
            done.append(row)
    return done


async def _run(control: Control, tenant: Tenant, run: str) -> RunRow:
    row = await control.store.run(tenant, RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    return row


def _outcome(registry: Registry, name: str, outcome: str | None) -> str:
    """The outcome in the form in which the tool's own result would have been written."""
    tool = registry.tools.get(name)
    where = f"the outcome of {name}"
    if tool is None:
        raise BadArguments(function=name, why="this application has no such tool, so its outcome cannot be read")
    try:
        text = outcome if outcome is not None else "null"
        json.loads(text)
        return tool.signature.result.encode(tool.signature.result.decode(text, where=where), where=where)
    except (UndecodableEntry, ValueError) as error:
        why = f"happened needs the outcome as JSON of its result type: {error}"
        raise BadArguments(function=name, why=why) from None
