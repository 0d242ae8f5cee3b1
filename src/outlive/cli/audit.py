"""`outlive audit`: is what is stored what was written?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import codes, options
from outlive.cli.screen import numbered, plain, put, put_json, say

if TYPE_CHECKING:
    from outlive.app.audit import Misfit, Progress
    from outlive.app.settings import Settings

EXAMPLES = {
    "verify": (
        "outlive audit verify",
        "outlive audit verify dunning-2026-03",
        "outlive audit verify --json",
        "outlive audit verify --bundle dunning.jsonl",
    ),
}

# Entries between two lines of progress.
_EACH = 50_000


def verify(
    *,
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", callback=options.name, help="One run [all of the tenant].", show_default=False),
    ] = None,
    bundle: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A bundle of `outlive export` instead; - for stdin.", show_default=False),
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Verify logs, and compare what stands beside them; changes nothing.

    Of each log the chain of digests is computed again, with every payload. Then the run's row, its operation records
    and its blobs are compared with what follows from the entries. Names the first entry that does not fit. Exits with 0
    only if all fits.
    """
    import asyncio

    from outlive.app import audit, operate
    from outlive.model.ids import Tenant

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    if bundle is not None:
        if run is not None:
            raise typer.BadParameter("say a run or --bundle, not both")
        _verify_bundle(bundle, settings, json=json)
        return
    progress = audit.Progress(_teller())

    async def read() -> list[Misfit]:
        found = []
        whose = Tenant(settings.tenant)
        async with operate.reading(settings) as opened:
            source = (
                audit.verify_all(opened, whose, progress)
                if run is None
                else audit.verify_run(opened, whose, run, progress)
            )
            async for misfit in source:
                found.append(misfit)
                if not json:
                    put(_line(misfit))
        return found

    found = asyncio.run(read())
    if json:
        put_json(_json(found, progress), indent=2)
    _say_how_it_went(found, progress)
    raise typer.Exit(codes.ERROR if found else codes.AGAIN if progress.busy else codes.OK)


def _verify_bundle(file: str, settings: Settings, *, json: bool) -> None:
    import asyncio

    from outlive.app import carry, operate
    from outlive.cli.import_ import opened
    from outlive.model.ids import Tenant

    whose = None if settings.sources.get("tenant") == "default" else Tenant(settings.tenant)

    async def read() -> carry.Carried:
        with opened(file) as lines:
            async with operate.reading(settings) as there:
                return await carry.verify(there, lines, whose)

    found = asyncio.run(read())
    if json:
        shown = {"fits": True, "tenant": found.tenant, "run": found.run, "entries": found.entries}
        put_json({**shown, "status": found.status, "own_key": found.own_key}, indent=2)
    say(f"run {found.run}: {found.entries} entries: all fits")
    if found.own_key:
        say("warning: only under the key that it carries itself: it was not damaged, but anybody may have written it")


def _teller() -> Callable[[Progress], None]:
    said = 0

    def tell(progress: Progress) -> None:
        nonlocal said
        if progress.entries - said >= _EACH:
            said = progress.entries
            say(f"{progress.runs} runs, {progress.entries} entries so far")

    return tell


def _say_how_it_went(found: list[Misfit], progress: Progress) -> None:
    for run in progress.busy:
        say(f"run {run} was written all the time: its log fits, what stands beside it was not compared; try again")
    verdict = f"{len(found)} do not fit" if found else "all fits"
    say(f"{numbered(progress.runs, 'run')}, {progress.entries} entries: {verdict}")


def _line(misfit: Misfit) -> str:
    entry = f"entry {misfit.entry}, " if misfit.entry is not None else ""
    return plain(f"run {misfit.run}: {entry}{misfit.what}: {misfit.why}")


def _json(found: list[Misfit], progress: Progress) -> dict[str, object]:
    return {
        "fits": not found and not progress.busy,
        "runs": progress.runs,
        "entries": progress.entries,
        "busy": progress.busy,
        "misfits": [{"run": one.run, "entry": one.entry, "what": one.what, "why": one.why} for one in found],
    }
