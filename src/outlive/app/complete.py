"""The other side tells the outcome of an operation that has it later: checked, and left in the inbox of its run."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from outlive.app import mail
from outlive.app.given import check_said, check_texts
from outlive.app.registry import Registry
from outlive.engine import later
from outlive.engine.control import Control
from outlive.engine.definition import ToolSpec
from outlive.engine.failures import writable
from outlive.engine.worker import owner_name
from outlive.log.codec import Codec
from outlive.model.clock import SystemClock
from outlive.model.errors import (
    BadArguments,
    LeaseLost,
    NotSerialisable,
    TooEarly,
    UndecodableEntry,
    UnknownOperation,
    UnknownRun,
)
from outlive.model.ids import OperationId, Tenant, unnamed
from outlive.model.operation import DidNotHappen, Happened, OperationRow
from outlive.model.run import ENDED, RunRow
from outlive.store.port import Message, Store

if TYPE_CHECKING:
    from outlive.app.outlive import Outlive


async def complete(
    control: Control, registry: Registry, tenant: Tenant, operation: str, outcome: Happened[object] | DidNotHappen, *,
    key: str, attempt: int | None = None, who: str = "", why: str = "",
) -> tuple[bool, OperationRow]:  # fmt: skip
    """See `Outlive.complete`; whether it is new, and the operation as it was found."""
    if wrong := unnamed(f"the key {key!r}", key):
        raise BadArguments(function="complete", why=wrong)
    if attempt is not None and not 0 < attempt < 2**31:
        raise BadArguments(function="complete", why=f"attempt={attempt}: they are counted from 1")
    check_said("complete", who, why)
    check_texts("complete", [("operation", operation), ("tenant", tenant)])
    store = control.store
    row = await store.operation(tenant, OperationId(operation))
    if row is None:
        raise UnknownOperation(operation=operation)
    run = await store.run(tenant, row.run)
    if run is None:
        raise UnknownRun(run=row.run)
    payload = None
    if isinstance(outcome, Happened):
        tool = _tool(registry, run, row)
        payload = _encoded(tool.signature.result, outcome.outcome, tool.name)
    else:
        await _refuse_too_early(control, run, row)
    answer: Literal["happened", "did not happen"] = "did not happen" if payload is None else "happened"
    word = later.Word(
        row.id, attempt or row.attempt, key, answer, payload, writable(who), writable(why or outcome.note)
    )  # fmt: skip
    message = Message(tenant, run.id, later.COMPLETION, f"{row.id}:{key}", later.written(word))
    new = await store.post(message, now=control.clock.now())
    # A run that has ended is claimed by nobody. Whoever is faster in claiming it finds this in its inbox.
    with suppress(LeaseLost):
        await control.take_in(tenant, run.id, only=ENDED)
    return new, row


def _tool(registry: Registry, run: RunRow, row: OperationRow) -> ToolSpec:
    """The tool of an operation, under the name that it has now."""
    agent = registry.agents.get(run.agent)
    name = agent.renamed.get(row.tool, row.tool) if agent is not None else row.tool
    tool = registry.tool(name)
    if tool is None:
        why = "this application has no such tool, so its outcome cannot be checked"
        raise BadArguments(function=name, why=why)
    return tool


async def _refuse_too_early(control: Control, run: RunRow, row: OperationRow) -> None:
    """Nobody would come back to it in a run that has ended."""
    if run.ended and row.status == "unknown":
        now = control.clock.now()
        now = now if now is not None else await control.store.now()
        if now < row.not_before:
            raise TooEarly(operation=row.id, seconds=(row.not_before - now) / 1000)


def _encoded(codec: Codec[object], outcome: object, tool: str) -> str:
    """The outcome as the tool's own result would have been written. JSON data that is one passes too."""
    where = f"the outcome of {tool}"
    try:
        return codec.encode(outcome, where=where)
    except NotSerialisable as refused:
        try:
            return codec.encode(codec.decode(mail.written(outcome, where), where=where), where=where)
        except (UndecodableEntry, NotSerialisable) as error:
            why = f"its outcome has to be a {codec.name}: {error if isinstance(error, UndecodableEntry) else refused}"
            raise BadArguments(function=tool, why=why) from None


async def told(
    store: Store, app: Outlive[object] | None, tenant: str, operation: str, outcome: str | None, *, key: str, who: str,
    why: str,
) -> tuple[bool, OperationRow, RunRow]:  # fmt: skip
    """See `complete`; `outcome` is JSON, None: it did not happen. Also the operation and its run after that.

    Only an outcome needs the application: it has the tool's result type.
    """
    said: Happened[object] | DidNotHappen = DidNotHappen()
    if outcome is not None:
        said = Happened(json.loads(mail.check_json(outcome, "the outcome")))
    clock, registry = SystemClock(), app.registry if app is not None else Registry()
    control = Control(store, clock, owner_name(clock))
    new, row = await complete(control, registry, Tenant(tenant), operation, said, key=key, who=who, why=why)
    run = await store.run(row.tenant, row.run)
    if run is None:
        raise UnknownRun(run=row.run)
    return new, await store.operation(row.tenant, row.id) or row, run
