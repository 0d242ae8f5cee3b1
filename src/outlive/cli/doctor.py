"""`outlive doctor`: is every run explained, and can the store be trusted?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from outlive.cli import codes, options
from outlive.cli.screen import numbered, plain, put, put_json, say

if TYPE_CHECKING:
    from outlive.app.doctor import Finding, Tally

EXAMPLES = ("outlive doctor", "outlive doctor --json")


def doctor(
    *,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """See what somebody should look at; changes nothing.

    Is every run explained, and can the store be trusted?

    A run that has not ended waits in a queue that a live worker serves, or a worker drives it, or it waits for a time
    or a message, or somebody paused it, or it is blocked for a reason that is named. Runs of which none of that is
    true are found, with leases that nobody took over, workers that fell silent, clocks that are apart, a database that
    may lose what it acknowledged, blobs that are lost or that nothing needs, and notifications that reach nobody.
    Without --tenant, of all tenants.
    Exits with 0 only if nothing is found.
    """
    import asyncio
    from dataclasses import replace

    from outlive.app import operate
    from outlive.app.doctor import Tally, examine, unsigned_routes

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    # An unsafe store is to be told of, not refused.
    opening = replace(settings, unsafe_durability=True)
    only = "" if settings.sources.get("tenant") == "default" else settings.tenant
    tally = Tally()

    async def read() -> list[Finding]:
        found = list(unsigned_routes(settings))
        if not json:
            for one in found:
                put(_line(one))
        async with operate.reading(opening) as opened:
            async for finding in examine(opened, tally, accept_unsafe=settings.unsafe_durability):
                if only and finding.tenant not in ("", only):
                    continue
                found.append(finding)
                if not json:
                    put(_line(finding))
        return found

    found = asyncio.run(read())
    if json:
        put_json(_json(found, tally), indent=2)
    else:
        explained = ", ".join(f"{kind} {count}" for kind, count in sorted(tally.explained.items()) if kind != "none")
        have = "has" if tally.runs == 1 else "have"
        say(f"{numbered(tally.runs, 'run')} {have} not ended{f' (explained by: {explained})' if explained else ''}")
        say("nothing to look at" if not found else f"{len(found)} to look at")
        if not tally.told:
            say("nobody is told of blocked runs: no worker with routes is here; see docs/notifications.md")
    raise typer.Exit(codes.ERROR if found else codes.OK)


def _line(finding: Finding) -> str:
    whose = f" of tenant {finding.tenant}" if finding.tenant not in ("", "default") else ""
    return plain(f"{finding.trouble}: {finding.subject}{whose}: {finding.why}")


def _json(found: list[Finding], tally: Tally) -> dict[str, object]:
    return {
        "healthy": not found,
        "runs": tally.runs,
        "told": tally.told,
        "explained": {kind: count for kind, count in sorted(tally.explained.items()) if kind != "none"},
        "findings": [
            {"trouble": one.trouble, "tenant": one.tenant, "subject": one.subject, "why": one.why} for one in found
        ],
    }
