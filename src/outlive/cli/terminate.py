"""`outlive terminate`: end a run at once, whatever it is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlive.cli import options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.model.run import RunRow

EXAMPLES = ("outlive terminate dunning-2026-03 --why 'its worker does not answer'",)


def terminate(
    *,
    run: options.RunArgument,
    why: options.Why,
    who: options.Who = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """End a run at once, whatever it is doing; try `outlive cancel` first.

    Its code does not clean up, and nothing that its worker does from now on is recorded, but for what it learns of
    calls that were sent: these are in doubt, and listed in `outlive show`.
    """
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)

    async def go() -> RunRow:
        async with operate.reading(settings) as opened:
            return await operate.terminate(opened, settings.tenant, run, who=who or options.user(), why=why)

    row = asyncio.run(go())
    say(f"run {run} is {row.status}")
