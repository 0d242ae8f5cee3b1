"""`outlive check`: what in the functions of agents would replay differently?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import codes, options
from outlive.cli.screen import numbered, plain, put, put_json, say

if TYPE_CHECKING:
    from outlive.app.check import Finding, Report

EXAMPLES = (
    "outlive check shop.app:app",
    "outlive check --app shop.app:app --agent dunning --ignore file,network",
    "outlive check --json   # with OUTLIVE_APP set",
)


def check(
    *,
    application: Annotated[
        str | None, typer.Argument(metavar="MODULE:ATTR", help="Short for --app.", show_default=False)
    ] = None,
    app: options.App = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", callback=options.name, help="Check this agent alone; may be repeated [all].",
            show_default=False,
        ),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODES", help="Look for these alone, as in clock,random; may be repeated [all].", show_default=False
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="CODES", help="Pass over these; may be repeated.", show_default=False),
    ] = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Find what would replay differently in the code of agents.

    Reads the source of each agent and of what it calls, outside of steps and tools: clocks, random values, the order of
    sets, environment, files, network, processes, sleeping, tasks, code that lets nothing pass, changes of globals.
    Each finding has its line, how the agent gets there, and what to do instead. The application is imported; no agent
    runs, and no store is opened. A comment `# outlive: replays - reason` on the line silences it. Exits with 0 only if
    nothing is found; notes do not count.
    """
    from outlive.app import operate
    from outlive.app.check import CODES
    from outlive.app.check import check as read

    if app is not None and application is not None and app != application:
        raise typer.BadParameter(f"the application is named twice: {application} and --app {app}")
    known = tuple(CODES)
    chosen = _codes(select, "--select", known) or set(known)
    found, settings = operate.application(app or application)
    operate.check_serves(found, settings)
    report = read(found, settings, agent or (), chosen - _codes(ignore, "--ignore", known))
    if json:
        put_json(_json(report), indent=2)
    else:
        for one in (*report.findings, *report.notes):
            _print(one, note=one in report.notes)
    _sum_up(report)
    raise typer.Exit(codes.ERROR if report.findings else codes.OK)


def _codes(given: list[str] | None, option: str, known: tuple[str, ...]) -> set[str]:
    named = {one.strip() for text in given or () for one in text.split(",") if one.strip()}
    if unknown := sorted(named - set(known)):
        raise typer.BadParameter(f"{option} {unknown[0]!r}: there is no such code; say some of {', '.join(known)}")
    return named


def _print(finding: Finding, *, note: bool) -> None:
    from outlive.app.check import shown

    found = finding.found
    place = found.place
    head = f"{shown(place.file)}:{place.line}:{place.column}: {'note: ' if note else ''}{found.code}: {found.what}"
    put(plain(head))
    put(f"    {plain(found.source)}")
    (agent, chain), *others = finding.chains.items()
    way = [f"{one.function} ({shown(one.place.file)}:{one.place.line})" for one in chain]
    also = f"; also by {', '.join(name for name, _ in others)}" if others else ""
    put(plain(f"  by agent {agent}: {' → '.join(way)}{also}"))
    put(plain(f"  why: {found.why}"))
    put(plain(f"  instead: {found.advice}"))


def _sum_up(report: Report) -> None:
    for name in report.frameworks:
        say(f"{name} is an agent of a framework: it has no function to check")
    for name in report.unread:
        say(f"{name} was not read: its source is not to be had")
    read = f"{numbered(len(report.agents), 'agent')} and {numbered(report.functions, 'function')} read"
    notes = f", {numbered(len(report.notes), 'note')}" if report.notes else ""
    say(f"{read}: {numbered(len(report.findings), 'finding') if report.findings else 'nothing found'}{notes}")


def _json(report: Report) -> dict[str, object]:
    return {
        "replays": not report.findings,
        "agents": report.agents,
        "frameworks": report.frameworks,
        "functions": report.functions,
        "unread": report.unread,
        "findings": [_finding(one) for one in report.findings],
        "notes": [_finding(one) for one in report.notes],
    }


def _finding(finding: Finding) -> dict[str, object]:
    found = finding.found
    return {
        "code": found.code, "file": found.place.file, "line": found.place.line, "column": found.place.column,
        "source": found.source, "what": found.what, "why": found.why, "instead": found.advice,
        "reached": [
            {
                "agent": agent,
                "chain": [
                    {"function": one.function, "file": one.place.file, "line": one.place.line} for one in chain
                ],
            }
            for agent, chain in finding.chains.items()
        ],
    }  # fmt: skip
