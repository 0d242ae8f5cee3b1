"""`outlive replay`: which runs in flight would this code break?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import codes, options
from outlive.cli.screen import numbered, plain, put, put_json, put_table, say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from outlive.app.outlive import Outlive
    from outlive.app.settings import Settings
    from outlive.gate.choice import Wanted
    from outlive.gate.crew import Orders
    from outlive.gate.judged import Judged
    from outlive.gate.report import Report

EXAMPLES = (
    "outlive replay shop.app:app --store postgresql://reader@replica/outlive",
    "outlive replay shop.app:app --agent dunning --since 7d --sample 100 --junit replay.xml",
    "outlive replay shop.app:app tests/bundles/*.jsonl",
)

_COLOURS = {
    "same": "green",
    "compatible": "green",
    "needs adoption": "yellow",
    "breaks": "bold red",
    "acts": "bold red",
}
_CODES = {"needs adoption": codes.BLOCKED, "breaks": codes.FAILED, "acts": codes.FAILED}


def replay(
    *,
    application: Annotated[
        str | None, typer.Argument(metavar="MODULE:ATTR", help="Short for --app.", show_default=False)
    ] = None,
    bundles: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BUNDLE", show_default=False,
            help="Files that `outlive export` wrote. They are replayed in the place of what the store has.",
        ),
    ] = None,
    app: options.App = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", callback=options.name, show_default=False,
            help="Runs of this agent alone; may be repeated [all].",
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option(min=0, metavar="N", help="Ended runs of each version of each agent, the newest first.")
    ] = 20,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", show_default=False, help="Ended runs that were started so long ago at most: 12h, 7d [any]."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=256, metavar="N", help="Processes [one for each core].", show_default=False)
    ] = None,
    limit: Annotated[str, typer.Option(metavar="TIME", help="How long one run may take.")] = "30s",
    deps: Annotated[
        bool, typer.Option("--deps", help="Open what the application depends on, for code that uses run.deps.")
    ] = False,
    network: Annotated[
        bool,
        typer.Option(
            "--network", help="Leave the processes in the network, for an application that cannot be imported without."
        ),
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="List the runs for which nothing changes as well.")] = False,
    junit: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the verdicts as JUnit's XML.", show_default=False)
    ] = None,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """See which runs in flight this code would break.

    All runs that have not ended, and a sample of those that have, are done again with this code: whatever is recorded
    comes from their logs, and nothing else is done, nothing is sent or written, to the store neither. Of each run it
    says that it is the same, compatible (the code goes on live behind what is recorded), that it needs adoption (a
    step differs, and a person may accept it), that it breaks (what differs, at which entry and line), or that it acts
    outside of steps. The exit code is 0 if all are the same or compatible, 4 if some need adoption, 3 if one breaks or
    acts, and 1 if there is nothing to replay.
    """
    import asyncio
    import os

    from outlive.app import operate
    from outlive.gate.choice import Wanted
    from outlive.gate.crew import Orders
    from outlive.model.ids import Tenant

    if app is not None and application is not None and app != application:
        # With --app the first argument may be a bundle.
        bundles, application = [application, *(bundles or [])], app
    found, settings = operate.application(
        app or application, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None
    )  # fmt: skip
    operate.check_serves(found, settings)
    every = settings.sources.get("tenant") == "default"
    wanted = Wanted(
        tenants=frozenset() if every else frozenset((Tenant(settings.tenant),)), agents=frozenset(agent or ()),
        sample=sample,
    )  # fmt: skip
    recent = options.time_of(since, "--since")
    orders = Orders(
        app=settings.app, deps=deps, limit_s=options.span_of(limit, "--limit").total_seconds(), alone=not network,
        jobs=jobs or os.cpu_count() or 1,
    )  # fmt: skip
    report = asyncio.run(_judge(found, settings, wanted, orders, tuple(bundles or ()), recent))
    if junit is not None:
        _write(junit, report.junit())
    if json:
        put_json(report.json(), indent=2)
    else:
        _print(report, show_all=show_all)
    raise typer.Exit(_code(report, agent or ()))


async def _judge(
    app: Outlive[object], settings: Settings, wanted: Wanted, orders: Orders, bundles: tuple[str, ...],
    recent: timedelta | None,
) -> Report:  # fmt: skip
    from contextlib import AsyncExitStack
    from dataclasses import replace

    from outlive.app import operate
    from outlive.gate.choice import chosen, unpacked
    from outlive.gate.crew import Crew
    from outlive.gate.report import Report, uncovered
    from outlive.model.errors import StoreError
    from outlive.model.ids import Tenant

    report = Report()
    async with AsyncExitStack() as stack:
        if bundles:
            try:
                known = await stack.enter_async_context(operate.reading(settings))
            except StoreError:
                known = None  # a store is needed for bundles without a key alone
            targets = await stack.enter_async_context(unpacked(bundles, known))
        else:
            there = await stack.enter_async_context(operate.reading(settings))
            if recent is not None:
                wanted = replace(wanted, since=await there.now() - round(recent.total_seconds() * 1000))
            targets = await chosen(there, wanted, app.registry.agents, Tenant(settings.tenant))
        step = _teller(len(targets))

        def told(one: Judged) -> None:
            report.judged.append(one)
            step(len(report.judged))

        crew = Crew(orders, told)
        await crew.judge(targets)
        report.alone = crew.alone
    report.uncovered = uncovered(report.judged, wanted.agents or app.registry.agents)
    return report


def _teller(total: int) -> Callable[[int], None]:
    """Says how far it is: on a terminal in one line that is written over, elsewhere at each tenth."""
    import sys

    terminal, tenths = sys.stderr.isatty(), 0

    def tell(done: int) -> None:
        nonlocal tenths
        if terminal:
            end = "\n" if done == total else ""
            print(f"\r{done} of {numbered(total, 'run')}", end=end, file=sys.stderr, flush=True)
        elif total >= 100 and done * 10 // total > tenths:
            tenths = done * 10 // total
            say(f"{done} of {numbered(total, 'run')}")

    return tell


def _print(report: Report, *, show_all: bool) -> None:
    from rich.text import Text

    from outlive.gate.judged import VERDICTS

    for one in report.told(all=show_all):
        put(plain(f"{_named(one)} ({one.agent} version {one.version}, {one.status}): {one.said()}"))
        for remedy in one.remedies:
            put(plain(f"    {remedy}"))
        for note in one.notes:
            put(plain(f"    note: {note}"))
    if report.judged:
        cells = [
            [Text(plain(line.agent)), Text(plain(line.version)), Text(str(line.runs))]
            + [Text(str(line.verdicts[name]), _COLOURS[name] if line.verdicts[name] else "dim") for name in VERDICTS]
            for line in report.lines
        ]
        put_table(("agent", "version", "runs", *VERDICTS), cells)
    if not report.alone and report.judged:
        say("warning: this system gives a process no network of its own: what C libraries send was not held back")
    for agent in report.uncovered:
        say(f"warning: no run of {plain(agent)} was replayed: nothing is known about it")


def _named(one: Judged) -> str:
    """The run; with its tenant where that has to be said."""
    from outlive.model.ids import DEFAULT_TENANT

    return one.run if one.tenant == DEFAULT_TENANT else f"{one.tenant}/{one.run}"


def _write(file: str, text: str) -> None:
    from pathlib import Path

    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise typer.BadParameter(f"--junit: {file} cannot be written: {error.strerror}") from None


def _code(report: Report, named: Sequence[str]) -> int:
    """The exit code: nothing to replay is an error, of an agent that was asked for too."""
    if report.worst is None:
        say("error: there is no run to replay")
        return codes.ERROR
    missing = [agent for agent in report.uncovered if agent in named]
    if missing and report.worst in ("same", "compatible"):
        say(f"error: there is no run of {plain(', '.join(missing))} to replay")
        return codes.ERROR
    return _CODES.get(report.worst, codes.OK)
