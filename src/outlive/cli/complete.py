"""`outlive complete`: tell the outcome of an operation that has it later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.model.operation import OperationRow
    from outlive.model.run import RunRow

EXAMPLES = (
    "outlive complete op-3f9c2a771b08e5d4c6aa --happened '\"ch_881\"' --key evt-17 --why 'seen in the bank ledger'",
    "outlive complete op-3f9c2a771b08e5d4c6aa --did-not-happen --key evt-17 --why 'the bank has refused it'",
)


def complete(
    *,
    operation: Annotated[
        str,
        typer.Argument(metavar="OP", callback=options.name, help="The operation's whole id.", show_default=False),
    ],
    key: Annotated[
        str,
        typer.Option(
            metavar="TEXT", callback=options.name, show_default=False,
            help="Which event tells it: a second one with this key changes nothing.",
        ),
    ],
    why: Annotated[str, typer.Option(metavar="TEXT", help="How you know; it is kept in the log.", show_default=False)],
    happened: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", show_default=False,
            help="It happened, with this result of the tool: JSON, @file.json, or - for stdin.",
        ),
    ] = None,
    did_not_happen: Annotated[bool, typer.Option("--did-not-happen", help="It did not happen, and will not.")] = False,
    who: options.Who = None,
    app: options.App = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Tell the outcome of an operation that has it later.

    As the other side does with `app.complete`. It is stored when this returns; no worker needs to live. --happened
    needs the application, because the outcome must be of the tool's result type. --did-not-happen lets the operation be
    sent again, as often as its tool is tried.

    Of an operation that is in doubt, or settled, it is evidence. Works on ended runs too.
    """
    import asyncio

    from outlive.app import complete as completing
    from outlive.app import operate

    if (happened is not None) == did_not_happen:
        raise typer.BadParameter("say either --happened JSON or --did-not-happen")
    if not why.strip():
        raise typer.BadParameter("--why: say how you know")
    text = options.text_of(happened, "--happened")
    common: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    found = None
    if happened is not None or app is not None:
        found, settings = operate.application(app, **common)
    else:
        settings = operate.settings_of(None, **common)

    async def go() -> tuple[bool, OperationRow, RunRow]:
        async with operate.reading(settings) as opened:
            return await completing.told(
                opened, found, settings.tenant, operation, text, key=key, who=who or options.user(), why=why
            )

    new, row, run = asyncio.run(go())
    told = "told" if new else f"told before with the key {key}, so nothing is changed"
    say(f"operation {row.id} ({row.tool}) of run {run.id}: {told}; it is {row.status}, the run is {run.status}")
