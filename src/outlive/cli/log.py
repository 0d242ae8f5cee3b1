"""`outlive log`: the entries of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import MOODS, console, line_json, line_text, put_json

EXAMPLES = (
    "outlive log dunning-2026-03",
    "outlive log dunning-2026-03 -f",
    "outlive log dunning-2026-03 --json --after 41",
)


def log(
    *,
    run: options.RunArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows, until the run has ended.")] = False,
    after: Annotated[
        int,
        typer.Option(
            min=-1, max=2**63 - 1, metavar="SEQ", help="Only entries behind this one; nothing is missed or shown twice."
        ),
    ] = -1,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object per entry and line; its fields are in docs/cli.md.")
    ] = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Show the log of a run.

    Number, time, kind and content of each entry.
    """
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    out = console()

    async def go() -> None:
        async with operate.reading(settings) as opened:
            async for line in operate.log_lines(opened, settings.tenant, run, after=after, follow=follow):
                if json:
                    put_json(line_json(line))
                else:
                    out.print(line_text(line), style=MOODS[line.mood])

    asyncio.run(go())
