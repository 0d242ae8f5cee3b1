"""`outlive resume`: let a paused run go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlive.cli import options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.model.run import RunRow

EXAMPLES = ("outlive resume dunning-2026-03 --why 'the bank is back'",)


def resume(
    *,
    run: options.RunArgument,
    why: options.Why,
    who: options.Who = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Let a paused run go on where it was."""
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)

    async def go() -> RunRow:
        async with operate.reading(settings) as opened:
            return await operate.resume(opened, settings.tenant, run, who=who or options.user(), why=why)

    row = asyncio.run(go())
    say(f"run {run} goes on; it is {row.status}")
