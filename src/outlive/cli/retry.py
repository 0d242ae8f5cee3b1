"""`outlive retry`: let blocked runs be tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import put, say

if TYPE_CHECKING:
    from outlive.app.settings import Settings
    from outlive.model.run import RunRow

EXAMPLES = (
    "outlive retry dunning-2026-03 --why 'the bank answers again'",
    "outlive retry --blocked --reason diverged --dry-run",
    "outlive retry --blocked --reason diverged --agent dunning",
)
_MOST = 10_000


def retry(
    *,
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", callback=options.name, help="The id of the run.", show_default=False)
    ] = None,
    blocked: Annotated[bool, typer.Option("--blocked", help="All blocked runs instead of one.")] = False,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="With --blocked: only those of this reason.", show_default=False)
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=options.name, help="With --blocked: only runs of this agent.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs that would be tried again.")] = False,
    why: Annotated[
        str, typer.Option(metavar="TEXT", help="What has changed; it is kept in the log.", show_default=False)
    ] = "",
    who: options.Who = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Let a blocked run, or all, be tried again.

    Nothing in doubt is repeated: an operation in doubt is looked up again, and the run blocks again if that is unclear.
    The ids of the runs are printed.
    """
    import asyncio

    from outlive.app import operate

    if (run is None) != blocked:
        raise typer.BadParameter("say either the id of a run or --blocked")
    if not blocked and (reason is not None or agent is not None):
        raise typer.BadParameter("--reason and --agent go with --blocked")
    if reason is not None and reason not in operate.REASONS:
        raise typer.BadParameter(f"--reason {reason!r}: a run is blocked for {', '.join(operate.REASONS)}")
    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    done = asyncio.run(_retry(settings, run, reason or "", agent or "", who or options.user(), why, dry_run=dry_run))
    for one in done:
        put(one)
    if blocked:
        say(f"{len(done)} runs {'would be tried again' if dry_run else 'are ready again'}")


async def _retry(
    settings: Settings, run: str | None, reason: str, agent: str, who: str, why: str, *, dry_run: bool
) -> list[str]:
    from outlive.app import operate

    tenant = settings.tenant
    async with operate.reading(settings) as store:
        rows: list[RunRow]
        if run is not None:
            if dry_run:
                rows = [(await operate.report(store, tenant, run)).row]
                return [row.id for row in rows if row.status == "blocked"]
            await operate.retry(store, tenant, run, who=who, why=why)
            return [run]
        if dry_run:
            rows, _ = await operate.listed(
                store, tenant, statuses=("blocked",), reason=reason, agent=agent, limit=_MOST
            )
        else:
            rows = await operate.retry_blocked(store, tenant, who=who, why=why, reason=reason, agent=agent)
        return [row.id for row in rows]
