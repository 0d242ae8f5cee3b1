"""`outlive resolve`: say what happened to an operation in doubt."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.model.operation import OperationRow
    from outlive.model.run import RunRow

EXAMPLES = (
    "outlive resolve dunning-2026-03 op-3f9c happened --outcome '\"ch_881\"' --why 'seen in the bank ledger'",
    "outlive resolve dunning-2026-03 op-3f9c did-not-happen --why 'the bank has no such charge'",
    "outlive resolve dunning-2026-03 op-3f9c abandon --why 'written off'",
    "outlive resolve dunning-2026-03-fork-1f op-77ab reuse --why 'it is the same charge'",
)


class Decision(StrEnum):
    """What a person can say about an operation in doubt, or held."""

    happened = "happened"
    did_not_happen = "did-not-happen"
    abandon = "abandon"
    reuse = "reuse"
    repeat = "repeat"


def resolve(
    *,
    run: options.RunArgument,
    operation: Annotated[
        str,
        typer.Argument(
            metavar="OP", callback=options.name, help="The operation's id, or its beginning.", show_default=False
        ),
    ],
    decision: Annotated[
        Decision,
        typer.Argument(
            metavar="DECISION", help="happened, did-not-happen, abandon, reuse or repeat.", show_default=False
        ),
    ],
    why: Annotated[str, typer.Option(metavar="TEXT", help="How you know; it is kept in the log.", show_default=False)],
    who: options.Who = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", show_default=False,
            help="With happened: what the tool returned, as JSON, @file.json, or - for stdin.",
        ),
    ] = None,
    app: options.App = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Say what happened to an operation in doubt.

    The run goes on by itself then. Ask the other side first (the operation's key is in `outlive show`). happened needs
    the application, because the outcome must be of the tool's result type. did-not-happen lets the operation be sent
    again. abandon lets the agent go on without knowing. Works on ended runs too.

    reuse and repeat are for an operation of a fork that is held, because another run has done it: take the outcome that
    it had there, or do it once more.
    """
    import asyncio

    from outlive.app import operate

    if outcome is not None and decision is not Decision.happened:
        raise typer.BadParameter("--outcome is said with happened only")
    if not why.strip():
        raise typer.BadParameter("--why: say how you know")
    text = options.text_of(outcome, "--outcome")
    common: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    found = None
    if decision is Decision.happened or app is not None:
        found, settings = operate.application(app, **common)
    else:
        settings = operate.settings_of(None, **common)

    async def go() -> tuple[OperationRow, RunRow]:
        async with operate.reading(settings) as opened:
            return await operate.resolve(
                opened, found, settings.tenant, run, operation, decision.value, who=who or options.user(), why=why,
                outcome=text,
            )  # fmt: skip

    settled, row = asyncio.run(go())
    say(f"operation {settled.id} ({settled.tool}) of run {run}: {decision.value}; the run is {row.status}")
