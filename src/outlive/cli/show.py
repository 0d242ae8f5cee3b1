"""`outlive show`: who owns a run, what has it done to the world, what is it waiting for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outlive.cli import advice, options
from outlive.cli.questions import question_json
from outlive.cli.screen import (
    COLOURS,
    console,
    iso,
    local,
    numbered,
    operation_json,
    plain,
    put_json,
    run_json,
    span,
    value_of,
)

if TYPE_CHECKING:
    from rich.text import Text

    from outlive.app.keys import Link
    from outlive.app.operate import Report
    from outlive.app.settings import Settings
    from outlive.model.operation import OperationRow

EXAMPLES = ("outlive show dunning-2026-03", "outlive show dunning-2026-03 --json")


def show(
    *,
    run: options.RunArgument,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Explain one run.

    Who owns it, what it has done to the world (operations with status, key and outcome), what it is waiting for.
    """
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)

    async def read() -> Report:
        async with operate.reading(settings) as opened:
            return await operate.report(opened, settings.tenant, run)

    found = asyncio.run(read())
    if json:
        put_json(_json(found), indent=2)
    else:
        _print(found, settings)


def _json(found: Report) -> dict[str, object]:
    owner = found.owner
    return {
        "run": run_json(found.row),
        "owner": None if found.row.owner is None else {
            "name": found.row.owner, "pid": owner.pid if owner else None,
            "seen_at": iso(owner.seen_at) if owner else None, "lease_until": iso(found.row.expires_at),
            "stalled_at": iso(owner.stalled_at) if owner else None, "stalled_by": owner.stalled_by if owner else "",
        },
        "waiting_for": waiting_for(found),
        "operations": [operation_json(one) for one in found.operations],
        "divergences": [{"code": one.code, "report": one.report} for one in found.divergences],
        "adoptable": [{"how": one.how, "means": one.means} for one in found.adoptable],
        "rollbacks": [{"id": one.id, "status": one.status, "reason": one.reason} for one in found.rollbacks],
        "awaited_keys": [[_link_json(link) for link in chain] for chain in found.awaited],
        "unread": found.unread,
        "questions": [question_json(one) for one in found.questions],
        "result": value_of(found.result),
        "error": found.error,
    }  # fmt: skip


def _link_json(link: Link) -> dict[str, object]:
    mark, owner = link.key.mark, link.owner
    return {
        "key": mark.shown, "status": mark.status, "run": mark.run, "operation": mark.operation,
        "run_status": owner.status if owner else None, "run_reason": owner.reason if owner else "",
    }  # fmt: skip


def _print(found: Report, settings: Settings) -> None:
    from rich.text import Text

    out = console()
    for name, value, style in _facts(found):
        out.print(Text(f"{name + ':':<13}") + Text(plain(value), style=style))
    for question in found.questions:
        asked = f"{question.text} (to {question.role}, {question.id})"
        out.print(Text(f"{'question:':<13}{plain(asked)}"))
    for operation in found.operations:
        out.print()
        out.print(_headline(operation))
        for name, value in _details(operation):
            out.print(Text(f"  {name + ':':<11}{plain(value)}"))
    if found.row.status == "blocked" or found.in_doubt or found.held or found.later:
        out.print()
        lines = list(advice.blocked(found, settings) if found.row.status == "blocked" else _doubts(found, settings))
        for line in lines:
            out.print(Text(plain(line)))


def _doubts(found: Report, settings: Settings) -> Iterator[str]:
    for operation in found.in_doubt:
        yield from advice.in_doubt(operation, found.row.id, settings)
    for operation in found.held:
        yield from advice.held(operation, found.row.id, settings)
    for operation in found.later:
        yield from advice.later(operation, settings)


def _facts(found: Report) -> Iterator[tuple[str, str, str]]:
    row = found.row
    yield "run", row.id, "bold"
    yield "agent", f"{row.agent} version {row.version}{' (pinned)' if row.pin is not None else ''}", ""
    yield "status", row.status, COLOURS.get(row.status, "")
    yield "owner", _owner(found), ""
    yield "waiting for", waiting_for(found), ""
    for chain in found.awaited:
        for link in chain:
            yield "key", link.said(), ""
    yield "started", f"{local(row.created_at)}, {span(found.now - row.created_at)} ago", ""
    if row.ended_at is not None:
        yield "ended", f"{local(row.ended_at)}, after {span(row.ended_at - row.created_at)}", ""
    if row.deadline_at is not None:
        yield "deadline", local(row.deadline_at), ""
    yield "entries", str(row.head.seq), ""
    if row.fork_of is not None:
        repeats = ", repeats its effects" if row.repeat_effects else ""
        yield "fork of", f"{row.fork_of} at entry {row.fork_seq}{repeats}", ""
    if row.forked:
        yield "forks", "there is a fork of it", ""
    if row.rolls_back is not None:
        yield "rolls back", row.rolls_back, ""
    for back in found.rollbacks:
        yield "rolled back", f"by {back.id}, which is {back.status} {back.reason}".rstrip(), ""
    for name, value in (
        ("principal", row.principal), ("purpose", row.purpose),
        ("labels", ", ".join(f"{key}={value}" for key, value in row.labels.items())),
        ("result", found.result or ""), ("error", found.error if row.status != "succeeded" else ""),
        ("diverged", "; ".join(f"build {one.code}: {one.report}" for one in found.divergences)),
    ):  # fmt: skip
        if value:
            yield name, value, ""


def _owner(found: Report) -> str:
    row = found.row
    if row.owner is None:
        return "nobody has it now" if not row.ended else "nobody, it has ended"
    late = row.expires_at is not None and row.expires_at < found.now
    lease = f"lease {'lapsed' if late else 'until'} {local(row.expires_at)}"
    process = f"pid {found.owner.pid}, " if found.owner else ""
    stall = f", stalled: {found.stall}" if found.stall else ""
    return f"{row.owner} ({process}{lease}{stall})"


def waiting_for(found: Report) -> str:
    """The one thing that the run waits for, in words."""
    row = found.row
    if row.ended:
        return "nothing"
    if row.paused_at is not None:
        return f"somebody to resume it; paused {local(row.paused_at)}"
    if row.status == "blocked":
        return f"a person: {row.reason}"
    if row.status == "waiting":
        return f"{row.reason}, until {local(row.wake_at)}" if row.wake_at else row.reason or "a message"
    if row.status == "running":
        pending = [advice.said(one) for one in found.operations if one.status == "pending"]
        return f"its calls in flight: {', '.join(pending)}" if pending else "its own code"
    version = f" version {row.pin}, to which it is pinned" if row.pin is not None else ""
    place = f"a worker that serves {row.agent}{version} (queue {row.queue}, priority {row.priority})"
    return place if found.serving else f"{place}; none has been seen lately"


def _headline(row: OperationRow) -> Text:
    from rich.text import Text

    by = f" ({row.how})" if row.how else ""
    status = Text(f"{row.status}{by}", style=COLOURS.get(row.status, ""))
    return Text(f"operation {row.id}: ") + status + Text(f"  {plain(advice.said(row))}")


def _details(row: OperationRow) -> Iterator[tuple[str, str]]:
    attempts = numbered(row.attempt, "attempt")
    sent = f"first sent {local(row.first_sent_at)}" if row.attempt else "not sent by this run"
    yield "effect", f"{row.effect}, {attempts}, {sent}, changed {local(row.updated_at)}"
    yield "key", row.key
    if row.outcome is not None:
        yield "outcome", row.outcome
    if row.error:
        yield {"pending": "in doubt", "unknown": "in doubt", "later": "later"}.get(row.status, "error"), row.error
    if row.notes:
        yield "notes", ", ".join(f"{name}={value}" for name, value in row.notes.items())
    if row.shared_operation:
        yield "done by", f"operation {row.shared_operation} of run {row.shared_run}, under its business key"
    if row.compensates:
        yield "undoes", row.compensates
    if row.compensated_by:
        yield "undone by", row.compensated_by
    if row.duplicates:
        yield "duplicates", f"{row.duplicates}: it acted more than once"
