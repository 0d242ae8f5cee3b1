"""What verbs share that act on one run or on many: how the many are chosen, a dry run, a line for each, and the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.codes import ERROR
from outlive.cli.ps import StatusName
from outlive.cli.screen import plain, put, say

if TYPE_CHECKING:
    from outlive.app.bulk import Verb
    from outlive.app.settings import Settings

OneRun = Annotated[
    str | None, typer.Argument(metavar="RUN", callback=options.name, help="The id of the run.", show_default=False)
]
Statuses = Annotated[
    list[StatusName] | None,
    typer.Option("--status", "-s", help="Many: runs of this status; may be repeated.", show_default=False),
]
Agent = Annotated[
    str | None,
    typer.Option(metavar="NAME", callback=options.name, help="Many: runs of this agent.", show_default=False),
]
Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Many: runs with this reason.", show_default=False)
]  # fmt: skip
Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="K=V", help="Many: runs with this label; may be repeated.", show_default=False),
]
OlderThan = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Many: runs started so long ago or longer: 30s, 2h, 7d.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the runs that it would be done to.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The options that choose many runs, as they were typed."""

    status: list[StatusName] | None = None
    agent: str | None = None
    reason: str | None = None
    label: list[str] | None = None
    older_than: str | None = None

    def __bool__(self) -> bool:
        return any((self.status, self.agent, self.reason, self.label, self.older_than))


def act(
    settings: Settings, run: str | None, choice: Choice, verb: Verb, *, statuses: tuple[str, ...], dry_run: bool,
    done: str,
) -> None:  # fmt: skip
    """Do it to one run, or to all that are chosen: among runs of `statuses`, unless others are asked for.

    A line for each goes to stdout, the sum to stderr. One run that fails raises its error; of many, each failure is a
    line on stderr, and the exit code is 1. Raises BadParameter for both, or neither.
    """
    import asyncio

    from outlive.app import bulk, operate
    from outlive.model.run import STATUSES

    asked = {one.value for one in choice.status or ()} or set(statuses)
    labels, older = options.labels_of(choice.label), options.time_of(choice.older_than, "--older-than")
    counts = {True: 0, False: 0}

    def tell(one: bulk.Done) -> None:
        counts[one.failed] += 1
        if one.failed:
            say(f"{one.run}  error: {one.said}")
        else:
            put(plain(f"{one.run}  {one.said}"))

    async def go() -> None:
        async with operate.reading(settings) as store:
            if run is not None:
                row = (await operate.report(store, settings.tenant, run)).row
                tell(bulk.Done(row.id, await (bulk.would if dry_run else verb)(store, row)))
                return
            which = await operate.filtered(
                store, statuses=[one for one in STATUSES if one in asked], agent=choice.agent or "",
                reason=choice.reason or "", labels=labels, older_than=older,
            )  # fmt: skip
            async for one in operate.many(store, settings.tenant, which, bulk.would if dry_run else verb):
                tell(one)

    asyncio.run(go())
    if run is None:
        failed = f", {counts[True]} failed" if counts[True] else ""
        say(f"{counts[False]} runs {'would be' if dry_run else 'are'} {done}{failed}")
        if counts[True]:
            raise typer.Exit(ERROR)


def check(run: str | None, choice: Choice, how: str) -> None:
    """Refuse a run beside a choice, and neither. `how` says what chooses."""
    if (run is None) != bool(choice):
        raise typer.BadParameter(f"say either the id of a run or which ones: {how}")
