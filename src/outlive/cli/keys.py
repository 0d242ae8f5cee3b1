"""`outlive keys`: what was done once, by which run, and who waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import COLOURS, iso, local, plain, put_json, put_table, say, value_of

if TYPE_CHECKING:
    from outlive.model.business import KeyRow

EXAMPLES = ("outlive keys", "outlive keys charge/INV-7", "outlive keys --status open,unknown --json")


def keys(
    *,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Only keys with this text in them.", show_default=False)
    ] = "",
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="Only keys that this run has.")] = "",
    status: Annotated[
        str, typer.Option("--status", metavar="STATUS", help="Only these, with commas between: open, unknown, …")
    ] = "",
    awaited: Annotated[bool, typer.Option("--awaited", help="Only keys that some run waits for.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 100,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """List business keys: what each stands for, and whose it is.

    Also what became of that operation, and how many runs wait for it.

    They outlive their runs. `outlive show` of a run that waits follows its key to the run that has it.
    """
    import asyncio

    from outlive.app import keys as business
    from outlive.app import operate
    from outlive.model.business import KeyFilter

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    which = KeyFilter(text, run, business.statuses(status) if status else (), awaited, limit)

    async def read() -> list[KeyRow]:
        async with operate.reading(settings) as opened:
            return await business.listed(opened, settings.tenant, which)

    rows = asyncio.run(read())
    if json:
        put_json([key_json(row) for row in rows], indent=2)
    elif not rows:
        say("no business key matches")
    else:
        _print(rows)


def _print(rows: list[KeyRow]) -> None:
    from rich.text import Text

    cells = [
        [
            Text(plain(row.mark.shown)), Text(row.mark.status, style=COLOURS.get(row.mark.status, "")),
            Text(plain(row.mark.tool)), Text(plain(row.mark.run)), Text(row.mark.operation),
            Text(str(len(row.waiters)) if row.waiters else "-"), Text(local(row.updated_at)),
        ]
        for row in rows
    ]  # fmt: skip
    put_table(("key", "status", "tool", "run", "operation", "waiting", "changed"), cells)


def key_json(row: KeyRow) -> dict[str, object]:
    """A business key for programs."""
    mark = row.mark
    return {
        "key": mark.shown, "digest": mark.key, "status": mark.status, "tool": mark.tool, "run": mark.run,
        "operation": mark.operation, "outcome": value_of(mark.outcome), "error": value_of(mark.error or None),
        "waiting": list(row.waiters), "created_at": iso(row.created_at), "updated_at": iso(row.updated_at),
    }  # fmt: skip
