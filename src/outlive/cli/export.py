"""`outlive export`: a run as a file."""

from __future__ import annotations

from typing import Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import results, say

EXAMPLES = (
    "outlive export dunning-2026-03              # into a file, with > of your shell",
    "outlive export dunning-2026-03 --with-key   # to be imported where the tenant has no key yet",
)


def export(
    *,
    run: options.RunArgument,
    with_key: Annotated[
        bool,
        typer.Option("--with-key", help="Put the tenant's digest key in: whoever has the file can forge its logs."),
    ] = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Write a run to stdout as JSON Lines; changes nothing.

    All that belongs to it, as of one moment: its row, its log with every payload, operations, inbox. Payloads are
    plain text. Each line carries a keyed digest; without its last line the bundle is not whole, and is refused. A run
    that has not ended goes on here: do not let a copy of it go on elsewhere as well.
    """
    import asyncio

    from outlive.app import carry, operate
    from outlive.model.ids import Tenant

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)

    async def write() -> int:
        count, out = 0, results()
        async with operate.reading(settings) as opened:
            async for line in carry.bundle_of(opened, Tenant(settings.tenant), run, with_key=with_key):
                out.write(line)
                count += 1
        out.flush()
        return count

    count = asyncio.run(write())
    say(f"run {run}: {count} lines")
    if with_key:
        say(f"warning: the file holds the digest key of tenant {settings.tenant}; keep it as you keep the database")
