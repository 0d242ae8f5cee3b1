"""`outlive cancel`: ask a run to end; its code may clean up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import codes, options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.app.stop import Cancelled
    from outlive.model.run import RunRow

EXAMPLES = (
    "outlive cancel dunning-2026-03 --why 'wrong month'",
    "outlive cancel dunning-2026-03 --why 'wrong month' --grace 5m --wait 6m",
)


def cancel(
    *,
    run: options.RunArgument,
    why: options.Why,
    who: options.Who = None,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long it may clean up, from when its code is told.")
    ] = "30s",
    wait: options.Wait = "2m",
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Ask a run to end; its code may clean up.

    Its code is told wherever it is; a call that may have been sent reaches its record first. A run that is blocked or
    paused, or that no live worker serves, ends at once, without its code. What is in doubt stays in `outlive show`.
    Exits with 75 if it was asked and has not ended yet, 1 if it had already ended otherwise.
    """
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    clean_up, patience = options.span_of(grace, "--grace"), options.span_of(wait, "--wait")

    async def go() -> tuple[Cancelled, RunRow]:
        async with operate.reading(settings) as opened:
            return await operate.cancel(
                opened, settings.tenant, run, who=who or options.user(), why=why, grace=clean_up, wait=patience
            )

    answer, row = asyncio.run(go())
    if answer == "asked":
        say(f"run {run} was asked to end; it is {row.status}, and ends within its grace")
        raise typer.Exit(codes.AGAIN)
    if answer == "too late":
        say(f"error: too late: run {run} has {row.status}")
        raise typer.Exit(codes.ERROR)
    say(f"run {run} is cancelled")
