"""`outlive retention`: what workers would forget now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import numbered, plain, put, put_json, put_table, say

if TYPE_CHECKING:
    from outlive.app.lasting import Standing

EXAMPLES = ("outlive retention", "outlive retention --runs", "OUTLIVE_RETENTION=succeeded=7d outlive retention --json")


def retention(
    *,
    runs: Annotated[bool, typer.Option("--runs", help="Name each run that is old enough, and what keeps it.")] = False,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """See which runs would be forgotten now; changes nothing.

    Workers do it, once an hour, by OUTLIVE_RETENTION as it is set for them: set it here as well. Without --tenant, of
    all tenants.
    """
    import asyncio

    from outlive.app import lasting, operate
    from outlive.model.ids import Tenant

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    whose = None if settings.sources.get("tenant") == "default" else Tenant(settings.tenant)
    standings, named = lasting.standings(settings.retention), list[dict[str, str]]()

    async def read() -> None:
        async with operate.reading(settings) as opened:
            for standing in standings:
                async for one in lasting.old_enough(opened, standing, whose):
                    if runs and json:
                        named.append({"tenant": one.tenant, "run": one.run, "kept_for": one.why})
                    elif runs:
                        put(plain(f"{one.run} of tenant {one.tenant}: {one.why or 'goes'}"))

    asyncio.run(read())
    if json:
        put_json(_json(standings, named if runs else None), indent=2)
    elif not runs:
        _print(standings)
    say(f"{numbered(sum(one.going for one in standings), 'run')} would go now")


def _print(standings: list[Standing]) -> None:
    from rich.text import Text

    from outlive.app.lasting import age

    cells = [
        [
            Text(one.status), Text(age(one)), Text(str(one.going)),
            Text(", ".join(f"{count} for {why}" for why, count in sorted(one.kept.items())) or "-"),
        ]
        for one in standings
    ]  # fmt: skip
    put_table(("status", "kept", "would go", "kept although older"), cells)


def _json(standings: list[Standing], named: list[dict[str, str]] | None) -> dict[str, object]:
    found: dict[str, object] = {
        one.status: {
            "seconds": None if one.age is None else one.age.total_seconds(), "would_go": one.going,
            "kept": dict(sorted(one.kept.items())),
        }
        for one in standings
    }  # fmt: skip
    return {"statuses": found} if named is None else {"statuses": found, "runs": named}
