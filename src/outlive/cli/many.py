"""What verbs share that act on one run or on many: how the many are chosen, a dry run, a line for each, and the sum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.codes import AGAIN, ERROR
from outlive.cli.ps import StatusName
from outlive.cli.screen import numbered, plain, put, say

if TYPE_CHECKING:
    from datetime import timedelta

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
Paused = Annotated[bool, typer.Option("--paused", help="Many: runs that are paused.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the runs that it would be done to.")]

CHOOSING = "--status, --agent, --reason, --label, --older-than"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The options that choose many runs, as they were typed."""

    status: list[StatusName] | None = None
    agent: str | None = None
    reason: str | None = None
    label: list[str] | None = None
    older_than: str | None = None
    paused: bool | None = None

    def __bool__(self) -> bool:
        return any((self.status, self.agent, self.reason, self.label, self.older_than, self.paused))


def act(
    settings: Settings, run: str | None, choice: Choice, verb: Verb, *, statuses: tuple[str, ...], dry_run: bool,
    done: str, would: Verb | None = None,
) -> None:  # fmt: skip
    """Do it to one run, or to all that are chosen: among runs of `statuses`, unless others are asked for.

    A line for each goes to stdout, the sum to stderr. One run that fails raises its error; of many, each failure is a
    line on stderr, and the exit code is 1. Of one run that was asked and not more, the exit code is 75.
    A dry run does `would` instead, without which each is listed as it is.
    """
    import asyncio

    from outlive.app import bulk, operate
    from outlive.model.run import STATUSES

    asked = {one.value for one in choice.status or ()} or set(statuses)
    labels, older = options.labels_of(choice.label), options.time_of(choice.older_than, "--older-than")
    if dry_run:
        verb = would or bulk.would
    counts = dict.fromkeys(("done", "asked", "left alone", "failed"), 0)

    def tell(one: bulk.Done) -> None:
        counts[one.kind] += 1
        if one.failed:
            say(f"{one.run}  error: {one.said}")
        else:
            put(plain(f"{one.run}  {one.said}"))

    async def go() -> None:
        async with operate.reading(settings) as store:
            if run is not None:
                row = await operate.found(store, settings.tenant, run)
                tell(bulk.Done(row.id, await verb(store, row)))
                return
            which = await operate.filtered(
                store, statuses=[one for one in STATUSES if one in asked], agent=choice.agent or "",
                reason=choice.reason or "", labels=labels, older_than=older, paused=choice.paused,
            )  # fmt: skip
            async for one in operate.many(store, settings.tenant, which, verb):
                tell(one)

    asyncio.run(go())
    if run is None:
        count, does = counts.pop("done"), "would be"
        if not dry_run:
            does = "is" if count == 1 else "are"
        others = "".join(f", {number} {kind}" for kind, number in counts.items() if number)
        say(f"{numbered(count, 'run')} {does} {done}{others}")
        if counts["failed"]:
            raise typer.Exit(ERROR)
    elif counts["asked"]:
        raise typer.Exit(AGAIN)


def check(run: str | None, choice: Choice, how: str = CHOOSING) -> None:
    """Refuse a run beside a choice, and neither. `how` says what chooses."""
    if (run is None) != bool(choice):
        raise typer.BadParameter(f"say either the id of a run or which ones: {how}")


def stop(
    given: dict[str, object], run: str | None, choice: Choice, verb: Verb, *, dry_run: bool, done: str,
    how: str = f"{CHOOSING}, --paused", paused: bool | None = None,
) -> None:  # fmt: skip
    """`act` with the settings that are given: among runs that have not ended, and with `paused` among those alone.

    Raises BadParameter for a run beside a choice, and for neither; `how` says what chooses.
    """
    from outlive.app import operate
    from outlive.model.run import ENDED, STATUSES

    check(run, choice, how)
    act(
        operate.settings_of(None, **given), run, choice if paused is None else replace(choice, paused=paused), verb,
        statuses=tuple(one for one in STATUSES if one not in ENDED), dry_run=dry_run, done=done,
    )  # fmt: skip


def patience(wait: str | None, run: str | None, of_one: str) -> timedelta:
    """How long to wait for each run. If nothing is said: `of_one` for one run, of many for none."""
    return options.span_of(wait if wait is not None else "0s" if run is None else of_one, "--wait")
