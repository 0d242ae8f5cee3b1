"""`outlive ps`: list runs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import COLOURS, plain, put_json, put_table, run_json, say, span

if TYPE_CHECKING:
    from outlive.model.run import RunRow, Status

EXAMPLES = (
    "outlive ps",
    "outlive ps --status blocked --status failed",
    "outlive ps --paused",
    "outlive ps --all --agent dunning --label team=billing --json",
)


class StatusName(StrEnum):
    """The statuses of a run, as a choice."""

    ready = "ready"
    running = "running"
    waiting = "waiting"
    blocked = "blocked"
    succeeded = "succeeded"
    failed = "failed"
    cancelled = "cancelled"
    expired = "expired"


def ps(
    *,
    status: Annotated[
        list[StatusName] | None,
        typer.Option("--status", "-s", help="Only runs of this status; may be repeated.", show_default=False),
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Ended runs too.")] = False,
    agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=options.name, help="Only runs of this agent.", show_default=False),
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Only runs that are paused.")] = False,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="Only runs with this label; may be repeated.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="At most so many, the newest.")] = 100,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """List runs: status, why, age, owner.

    Newest first, without those that have ended.
    """
    import asyncio

    from outlive.app import operate
    from outlive.model.run import ENDED, STATUSES

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    asked = {one.value for one in status or ()}
    # All of them: also one whose status is none, which somebody has to see.
    statuses: tuple[Status, ...] = ()
    if asked or not all:
        statuses = tuple(one for one in STATUSES if (one in asked if asked else one not in ENDED))
    labels = options.labels_of(label)

    async def read() -> tuple[list[RunRow], int, dict[str, str]]:
        async with operate.reading(settings) as opened:
            rows, now = await operate.listed(
                opened, settings.tenant, statuses=statuses, agent=agent or "", labels=labels, limit=limit + 1,
                paused=paused or None,
            )  # fmt: skip
            return rows, now, await operate.stalls(opened)

    rows, now, stalls = asyncio.run(read())
    if json:
        put_json([{**run_json(row), "stalled": stalls.get(row.owner or "", "")} for row in rows[:limit]], indent=2)
    else:
        _print(rows[:limit], now, stalls)
    if len(rows) > limit:
        say(f"there are more than {limit}; see --limit")


def _print(rows: list[RunRow], now: int, stalls: dict[str, str]) -> None:
    from rich.text import Text

    if not rows:
        say("no runs")
        return
    cells = [
        [
            Text(plain(row.id)), Text(plain(row.agent)), Text(plain(row.status), style=COLOURS.get(row.status, "")),
            Text(span(now - row.created_at)), Text(row.owner or "-"), Text(plain(_why(row, now, stalls))),
        ]
        for row in rows
    ]  # fmt: skip
    put_table(("run", "agent", "status", "age", "owner", "reason"), cells)


def _why(row: RunRow, now: int, stalls: dict[str, str]) -> str:
    """Why it is as it is; of a run that is driven, how long it stays its owner's, or that its owner is stuck."""
    if row.damaged:
        return f"damaged: {row.damaged}"
    if stall := stalls.get(row.owner or ""):
        return f"stalled: {stall}"
    if row.paused_at is not None:
        return f"paused {span(now - row.paused_at)} ago"
    if row.status == "blocked":
        return f"{row.reason}: {row.detail}"
    if row.status == "running" and row.expires_at is not None:
        return f"lease ends in {span(row.expires_at - now)}" if row.expires_at > now else "lease lapsed"
    return row.reason or row.detail
