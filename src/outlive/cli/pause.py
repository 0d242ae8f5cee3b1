"""`outlive pause`: let a run stand still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from outlive.cli import codes, options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.app.stop import Paused
    from outlive.model.run import RunRow

EXAMPLES = ("outlive pause dunning-2026-03 --why 'the bank is down until noon'",)


def pause(
    *,
    run: options.RunArgument,
    why: options.Why,
    who: options.Who = None,
    wait: options.Wait = "60s",
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Let a run stand still until `outlive resume`.

    Calls in flight reach their record first. What it is sent meanwhile is kept; its deadline still counts. Exits with
    75 if it was asked and does not stand still yet, 1 if it has ended.
    """
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    patience = options.span_of(wait, "--wait")

    async def go() -> tuple[Paused, RunRow]:
        async with operate.reading(settings) as opened:
            return await operate.pause(
                opened, settings.tenant, run, who=who or options.user(), why=why, wait=patience
            )  # fmt: skip

    answer, row = asyncio.run(go())
    if answer == "asked":
        say(f"run {run} was asked to pause; it does when its calls in flight have their record")
        raise typer.Exit(codes.AGAIN)
    if answer == "too late":
        say(f"error: too late: run {run} has {row.status}")
        raise typer.Exit(codes.ERROR)
    say(f"run {run} is paused")
