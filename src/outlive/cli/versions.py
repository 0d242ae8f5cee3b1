"""`outlive versions`: which versions of each agent have runs, and who serves them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from outlive.cli import options
from outlive.cli.screen import plain, put_json, put_table, say

if TYPE_CHECKING:
    from outlive.app.versions import Standing

EXAMPLES = ("outlive versions", "outlive versions --json")

_STATUSES = ("ready", "running", "waiting", "blocked")


def versions(
    *,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """See which versions have runs left, and who serves them.

    A line is a version: its runs by status, the live workers that serve it with their builds, the runs that no live
    worker could drive, and those that a build has diverged from. Below it: which runs need workers of a version,
    and which versions need none any more. Without --tenant, of all tenants.
    """
    import asyncio

    from outlive.app import operate
    from outlive.app.versions import standings

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    only = "" if settings.sources.get("tenant") == "default" else settings.tenant

    async def read() -> list[Standing]:
        async with operate.reading(settings) as opened:
            return await standings(opened, only)

    found = asyncio.run(read())
    if json:
        put_json([_json(one) for one in found], indent=2)
    else:
        _print(found)


def _print(found: list[Standing]) -> None:
    from rich.text import Text

    if not found:
        say("no runs that have not ended, and no live worker")
        return
    columns = ("agent", "version", *_STATUSES, "workers", "unserved", "diverged")
    cells = [
        [
            Text(plain(one.agent)), Text(plain(one.version)), *(Text(str(one.runs[status])) for status in _STATUSES),
            Text(_counted(one.workers) or "none", style="" if one.workers else "yellow"),
            Text(str(one.unserved), style="bold red" if one.unserved else ""), Text(_counted(one.diverged) or "-"),
        ]
        for one in found
    ]  # fmt: skip
    put_table(columns, cells)
    for one in found:
        if said := needs(one):
            say(said)
        if one.unserved:
            pinned = f"; {one.pinned} of its runs are pinned to it" if one.pinned else ""
            runs = f"{one.unserved} runs of {one.agent} version {one.version}"
            say(f"{runs} have no live worker that could drive them{pinned}")


def needs(one: Standing) -> str:
    """What still needs workers of this version, where there are others; empty where there is nothing to say."""
    name = f"{plain(one.agent)} version {plain(one.version)}"
    if one.needed.runs and (one.beside or not one.workers):
        parts = [f"{one.needed.pinned} pinned"] if one.needed.pinned else []
        parts += [f"{count} diverged with {plain(build)}" for build, count in sorted(one.needed.diverged.items())]
        why = f" ({', '.join(parts)})" if parts else ""
        count = f"{one.needed.runs} runs need" if one.needed.runs > 1 else "1 run needs"
        return f"{name}: {count} it{why}" + ("" if one.workers else ", and no live worker serves it")
    if one.stoppable:
        left = sum(one.runs.values())
        why = f"others can drive its {left} runs" if left else "no runs left"
        return f"{name}: {why}; its workers can be stopped"
    return ""


def _counted(builds: Counter[str]) -> str:
    """How many of each build: `2 of 8c1f00aa41e2, 1 of 93ab…`."""
    return ", ".join(f"{count} of {plain(build)}" for build, count in sorted(builds.items()))


def _json(one: Standing) -> dict[str, object]:
    return {
        "agent": one.agent, "version": one.version, "runs": {status: one.runs[status] for status in _STATUSES},
        "pinned": one.pinned, "unserved": one.unserved, "workers": dict(one.workers), "diverged": dict(one.diverged),
        "needed": {
            "runs": one.needed.runs, "pinned": one.needed.pinned, "diverged": dict(one.needed.diverged),
        },
        "stoppable": one.stoppable,
    }  # fmt: skip
