"""What people decide about runs: what happened to an operation in doubt, and whether a blocked run is tried again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Literal

from outlive.app import bulk
from outlive.app.given import check_said, check_texts
from outlive.app.registry import Registry
from outlive.engine import inbox
from outlive.engine.adoption import Acceptance
from outlive.engine.control import Control, find_operation
from outlive.engine.failures import writable
from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.log.outcomes import outcome_of
from outlive.model.errors import (
    BadArguments,
    LeaseLost,
    NotInDoubt,
    Refused,
    UndecodableEntry,
    UnknownRun,
    WrongState,
)
from outlive.model.ids import OperationId, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import RunFilter, RunRow
from outlive.store.port import Store

Word = Literal["happened", "did-not-happen", "abandon", "reuse", "repeat"]


async def resolve(
    control: Control, registry: Registry, tenant: Tenant, run: str, operation: str, decision: Word, *, who: str,
    why: str,
    outcome: str | None = None,
) -> OperationRow:  # fmt: skip
    """Record what a person knows of an operation in doubt; the run goes on by itself then.

    `operation` may be the beginning of its id. *happened* needs the outcome as JSON of the tool's result type. *reuse*
    and *repeat* are for an operation that is held, because another run has done it: take its outcome, do it once more.
    Raises UnknownRun, UnknownOperation, NotInDoubt, TooEarly, BadArguments; then nothing is changed.
    """
    check_said("resolve", who, why)
    row = await _run(control, tenant, run)
    found = await find_operation(control.store, tenant, row.id, operation)
    if (found.status == "held") != (decision in ("reuse", "repeat")) and decision != "abandon":
        raise NotInDoubt(operation=found.id, status=found.status)
    agent = registry.agents.get(row.agent)
    name = agent.renamed.get(found.tool, found.tool) if agent is not None else found.tool
    payload = _outcome(registry, name, outcome) if decision == "happened" else None
    if decision == "reuse":
        payload = await _their_outcome(control.store, found)
    said = inbox.Decision(found.id, found.attempt, decision, writable(who), writable(why), payload)
    await control.resolve(row, found, said)
    return found


async def retry(control: Control, tenant: Tenant, run: str, *, who: str, why: str) -> None:
    """Let a blocked run be tried again. Raises UnknownRun, WrongState, BadArguments."""
    check_said("retry", who, why)
    await control.retry(await _run(control, tenant, run), who=who, why=why)


async def adopt(control: Control, tenant: Tenant, run: str, wish: Acceptance) -> kinds.Adopted:
    """Accept that the code differs from the log at a step, or will.

    Raises UnknownRun, WrongState, NotAdoptable, BadArguments.
    """
    check_said("adopt", wish.who, wish.why)
    if wish.step is not None:
        check_texts("adopt", [("step", wish.step.name), ("digest", wish.step.digest)])
    return await control.adopt(await _run(control, tenant, run), wish)


async def retry_blocked(
    control: Control, tenant: Tenant, *, who: str, why: str, reason: str = "", agent: str = ""
) -> list[RunRow]:
    """Let all runs that are blocked now (of a reason, of an agent) be tried again; returns those that were.

    One that somebody else has claimed or retried meanwhile is left out.
    """
    check_said("retry", who, why)
    which = RunFilter(statuses=("blocked",), agent=agent, reason=reason)
    done: list[RunRow] = []
    async for row in bulk.chosen(control.store, tenant, which):
        with suppress(WrongState, LeaseLost):
            await control.retry(row, who=who, why=why)
            done.append(row)
    return done


async def _their_outcome(store: Store, held: OperationRow) -> str:
    """The outcome of the operation because of which this one is held, as its own run has recorded it."""
    theirs: OperationRow | None = None
    async for entry in _behind(store, held):
        if entry.kind == kinds.Held.KIND:
            fact = kinds.read(entry)
            if isinstance(fact, kinds.Held) and fact.operation == held.id:
                theirs = await store.operation(held.tenant, OperationId(fact.theirs))
    if theirs is None or theirs.status != "succeeded":
        status = theirs.status if theirs is not None else "gone"
        run = f" of run {theirs.run}" if theirs is not None else ""
        why = f"that operation{run} is {status}, so it has no outcome; say first what became of it"
        raise Refused(what=f"reuse for {held.id}", why=why)
    found: dict[str, str | None] = {}
    async for entry in _behind(store, theirs):
        if operation := outcome_of(entry, found):
            found[operation] = entry.payload if operation == theirs.id else None
    return found.get(theirs.id) or "null"


async def _behind(store: Store, row: OperationRow) -> AsyncIterator[Entry]:
    """The log of an operation's run from its first entry on."""
    after = row.seq - 1
    while page := await store.entries(row.tenant, row.run, after=after):
        after = page[-1].seq
        for entry in page:
            yield entry


async def _run(control: Control, tenant: Tenant, run: str) -> RunRow:
    row = await control.store.run(tenant, RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    return row


def _outcome(registry: Registry, name: str, outcome: str | None) -> str:
    """The outcome in the form in which the tool's own result would have been written."""
    tool = registry.tool(name)
    where = f"the outcome of {name}"
    if tool is None:
        raise BadArguments(function=name, why="this application has no such tool, so its outcome cannot be read")
    try:
        text = outcome if outcome is not None else "null"
        json.loads(text)
        return tool.signature.result.encode(tool.signature.result.decode(text, where=where), where=where)
    except (UndecodableEntry, ValueError, RecursionError) as error:
        given = "" if outcome is not None else "none was given, and null does not fit: "
        why = f"happened needs the outcome as JSON of its result type: {given}{error}"
        raise BadArguments(function=name, why=why) from None
