"""`outlive notify`: whether those who should be told can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from outlive.cli import codes, options
from outlive.cli.screen import plain, put, put_json, say

if TYPE_CHECKING:
    from outlive.app.notify import Tried

EXAMPLES = {"test": ("outlive notify test", "outlive notify test --app shop:app --json")}


def test(*, json: options.Json = False, app: options.App = None, debug: options.Debug = False) -> None:
    """Send a test over every route, and print what is answered.

    The routes are those of OUTLIVE_NOTIFY, or of the application where --app names one that has its own. Exits with 0
    only if there are routes and each of them took it.
    """
    import asyncio

    from outlive.app import notify, operate

    application, settings = (None, operate.settings_of(None)) if app is None else operate.application(app)
    found: list[Tried] = []

    async def send() -> None:
        async for one in notify.try_routes(application, settings):
            found.append(one)
            if not json:
                put(plain(f"{one.route.name}: {one.route.place}: {'ok' if one.delivered else 'FAILED'}: {one.said}"))

    asyncio.run(send())
    if json:
        put_json(
            [
                {"route": one.route.name, "to": one.route.place, "delivered": one.delivered, "said": one.said}
                for one in found
            ],
            indent=2,
        )
    if not found:
        say("error: there are no routes, so nobody is told")
        say("hint: set OUTLIVE_NOTIFY, or Outlive(notify=[...]) and --app; see docs/notifications.md")
    raise typer.Exit(codes.OK if found and all(one.delivered for one in found) else codes.ERROR)
