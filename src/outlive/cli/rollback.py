"""`outlive rollback`: undo what a run has done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import advice, options
from outlive.cli.screen import operation_json, plain, put, put_json, put_table, say

if TYPE_CHECKING:
    from outlive.app.rollback import Plan
    from outlive.model.run import RunRow

EXAMPLES = (
    "outlive rollback dunning-2026-03 --dry-run --app shop.app:app",
    "outlive rollback dunning-2026-03 --why 'the customer has withdrawn'",
)


def rollback(
    *,
    run: options.RunArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be undone, in which order, and what is left.")
    ] = False,
    why: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; it is kept in the log.", show_default=False)
    ] = "",
    who: options.Who = None,
    json: options.Json = False,
    app: options.App = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Undo what a run has done, newest first.

    A run of its own does it, whose id is printed: each operation that succeeded is compensated, as its tool says. A run
    that has not ended is cancelled first. What is in doubt is settled before anything older is undone, and a
    compensation that fails blocks, until somebody lets it be tried again with `outlive retry`.

    --dry-run needs the application, which knows what has a compensation; the rollback itself is a worker's.
    """
    import asyncio

    from outlive.app import operate, rollback

    if not dry_run and not why.strip():
        raise typer.BadParameter("--why: say why")
    given: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    if dry_run:
        found, settings = operate.application(app, **given)
        found.registry.load()

        async def look() -> Plan:
            async with operate.reading(settings) as opened:
                return await rollback.plan(opened, found.registry, settings.tenant, run)

        plan = asyncio.run(look())
        put_json(_json(plan), indent=2) if json else _print(plan)
        return
    settings = operate.settings_of(None, **given)

    async def go() -> tuple[RunRow, RunRow]:
        async with operate.reading(settings) as opened:
            return await rollback.ask(opened, settings.tenant, run, who=who or options.user(), why=why)

    row, made = asyncio.run(go())
    if json:
        put_json({"rollback": made.id, "rolls_back": row.id, "status": made.status}, indent=2)
    else:
        put(made.id)
    say(f"it rolls back {row.id}" + ("" if row.ended else f", which is {row.status} and is cancelled first"))
    if row.forked:
        say("there is a fork of it, which may go on from what is undone: look at it")


def _json(plan: Plan) -> dict[str, object]:
    return {
        "run": plan.row.id, "status": plan.row.status, "rollback": plan.rollback or None, "forked": plan.row.forked,
        "steps": [
            {"what": one.fate, "why": one.why, "operation": operation_json(one.operation)} for one in plan.steps
        ],
    }  # fmt: skip


def _print(plan: Plan) -> None:
    from rich.text import Text

    if not plan.steps:
        say(f"run {plan.row.id} has done nothing that could be undone")
    else:
        words = {"left": "is left", "nothing": "nothing to undo", "unserved": "blocks", "in doubt": "in doubt"}
        rows = [
            [
                Text(one.operation.id),
                Text(plain(words.get(one.fate, one.fate))),
                Text(plain(advice.said(one.operation))),
                Text(plain(one.why)),
            ]
            for one in plan.steps
        ]
        put_table(("operation", "what", "call", "why"), rows)
    if not plan.row.ended:
        say(f"run {plan.row.id} is {plan.row.status}: it is cancelled first, and may do more until then")
    if plan.row.forked:
        say("there is a fork of it, which may go on from what is undone: look at it")
    if plan.rollback:
        say(f"run {plan.rollback} is rolling it back already")
