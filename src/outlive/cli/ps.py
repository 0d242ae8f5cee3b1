"""`outlive ps`: list runs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import COLOURS, console, plain, put_json, run_json, say, span, table

if TYPE_CHECKING:
    from outlive.model.run import RunRow, Status

EXAMPLES = (
    "outlive ps",
    "outlive ps --status blocked --status failed",
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
    agent: Annotated[str, typer.Option(metavar="NAME", help="Only runs of this agent.", show_default=False)] = "",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="K=V", help="Only runs with this label; may be repeated.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many, the newest.")] = 100,
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
    live = all or asked
    statuses: tuple[Status, ...] = tuple(
        one for one in STATUSES if (one in asked if asked else live or one not in ENDED)
    )
    labels = options.labels_of(label)

    async def read() -> tuple[list[RunRow], int]:
        async with operate.reading(settings) as opened:
            return await operate.listed(
                opened, settings.tenant, statuses=statuses, agent=agent, labels=labels, limit=limit + 1
            )

    rows, now = asyncio.run(read())
    if json:
        put_json([run_json(row) for row in rows[:limit]], indent=2)
    else:
        _print(rows[:limit], now)
    if len(rows) > limit:
        say(f"there are more than {limit}; see --limit")


def _print(rows: list[RunRow], now: int) -> None:
    from rich.text import Text

    shown = table("run", "agent", "status", "age", "owner", "reason")
    for row in rows:
        why = f"{row.reason}: {row.detail}" if row.status == "blocked" else row.reason or row.detail
        shown.add_row(
            Text(plain(row.id)), Text(plain(row.agent)), Text(row.status, style=COLOURS[row.status]),
            span(now - row.created_at), row.owner or "-", Text(_short(plain(why))),
        )  # fmt: skip
    if rows:
        console().print(shown)
    else:
        say("no runs")


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"
