"""`outlive notifications`: what somebody has to be told, and whether they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import iso, local, plain, put_json, put_table, say

if TYPE_CHECKING:
    from outlive.app.notify import Told

EXAMPLES = ("outlive notifications", "outlive notifications --undelivered --json")


def notifications(
    *,
    undelivered: Annotated[
        bool,
        typer.Option("--undelivered", help="Only those that are not delivered on every route, or have none."),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="At most so many, the newest.")] = 100,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """List what somebody has to be told, and whether they were.

    Newest first: runs that became blocked, operations whose outcome is unknown, questions, deadlines that are near.
    """
    import asyncio

    from outlive.app import notify, operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)

    async def read() -> list[Told]:
        async with operate.reading(settings) as opened:
            return await notify.listed(opened, settings.tenant, undelivered=undelivered, limit=limit + 1)

    found = asyncio.run(read())
    if json:
        put_json([_json(one) for one in found[:limit]], indent=2)
    else:
        _print(found[:limit])
    if len(found) > limit:
        say(f"there are more than {limit}; see --limit")


def _print(found: list[Told]) -> None:
    from rich.text import Text

    if not found:
        say("no notifications")
        return
    cells = [
        [
            Text(plain(one.notification.run)), Text(one.notification.kind), Text(local(one.notification.at)),
            Text(plain(one.notification.role) or "-"), Text(plain(_state(one))),
        ]
        for one in found
    ]  # fmt: skip
    put_table(("run", "what", "at", "role", "told"), cells)


def _state(told: Told) -> str:
    if not told.deliveries:
        return "nobody so far"
    return ", ".join(_way(way.route, way.delivered_at, way.given_up_at, way.error) for way in told.deliveries)


def _way(route: str, delivered_at: int | None, given_up_at: int | None, error: str) -> str:
    if delivered_at is not None:
        return f"{route} {local(delivered_at)}"
    if given_up_at is not None:
        return f"{route}: given up: {error}"
    return f"{route}: {error or 'not yet'}"


def _json(told: Told) -> dict[str, object]:
    one = told.notification
    return {
        "id": one.id, "kind": one.kind, "tenant": one.tenant, "run": one.run, "agent": one.agent, "seq": one.seq,
        "role": one.role, "at": iso(one.at), "facts": one.facts,
        "deliveries": [
            {
                "route": way.route, "attempts": way.attempts, "next_at": iso(way.next_at),
                "failing_since": iso(way.failing_since), "delivered_at": iso(way.delivered_at),
                "given_up_at": iso(way.given_up_at), "error": way.error,
            }
            for way in told.deliveries
        ],
    }  # fmt: skip
