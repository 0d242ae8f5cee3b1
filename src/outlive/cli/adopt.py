"""`outlive adopt`: accept that the code does something else at a step than the log has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import put, say

if TYPE_CHECKING:
    from outlive.log.difference import Adoption
    from outlive.log.kinds import Adopted

EXAMPLES = (
    "outlive adopt dunning-2026-03 --skip --why 'the reminder is not written any more'",
    "outlive adopt dunning-2026-03 --insert --why 'the address is checked first since release 8'",
    "outlive adopt dunning-2026-03 --take-old --at 17 --why 'only the name of the step has changed'",
    "outlive adopt dunning-2026-04 --skip --at 17 --step remind --why 'release 8 does not write reminders'",
)


def adopt(
    *,
    run: options.RunArgument,
    skip: Annotated[bool, typer.Option("--skip", help="The code need not ask for the recorded step.")] = False,
    insert: Annotated[
        bool, typer.Option("--insert", help="The code does a step that is not recorded, before the recorded call.")
    ] = False,
    take_old: Annotated[
        bool, typer.Option("--take-old", help="The code's step gives what the recorded step has given.")
    ] = False,
    run_again: Annotated[
        bool, typer.Option("--run-again", help="The code's step is done in the place of the recorded one.")
    ] = False,
    at: Annotated[
        int | None,
        typer.Option(min=0, metavar="ENTRY", help="The entry where a build diverged [the last].", show_default=False),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default=False,
            help="Before a build has diverged: the step that the code will ask for; with --skip, the recorded one.",
        ),
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option(
            metavar="HEX", show_default=False,
            help="With --step: the digest of its arguments, as `outlive replay` says it.",
        ),
    ] = None,
    why: Annotated[
        str, typer.Option(metavar="TEXT", help="Why that is right; it is kept in the log.", show_default=False)
    ],
    who: options.Who = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Accept that the code differs from the log at a step.

    For a run that has diverged: `outlive show` says at which entry, and which of the four ways there are. Before a
    deploy, with --step, for one that nobody drives just now: `outlive replay` has the commands. It holds for every
    build from then on, and all builds may try the run again. Only steps are adopted, never what a tool did, what
    the run waited for, or what it drew: there the code has to fit the log. The id of the run is printed.
    """
    import asyncio

    from outlive.app import operate

    ways: dict[Adoption, bool] = {"skip": skip, "insert": insert, "take-old": take_old, "run-again": run_again}
    chosen = [how for how, wanted in ways.items() if wanted]
    if len(chosen) != 1:
        raise typer.BadParameter("say one of --skip, --insert, --take-old and --run-again")
    if not why.strip():
        raise typer.BadParameter("--why: say why that is right")
    if digest is not None and (step is None or skip):
        raise typer.BadParameter(
            "--digest is of the step that the code will ask for: say it with --step, not with --skip"
        )
    if step is not None and at is None:
        raise typer.BadParameter("--step: say --at ENTRY, too")
    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)

    async def go() -> Adopted:
        async with operate.reading(settings) as opened:
            return await operate.adopt(
                opened, settings.tenant, run, chosen[0], who=who or options.user(), why=why, at=at,
                step=None if step is None else (step, digest or ""),
            )  # fmt: skip

    done = asyncio.run(go())
    put(run)
    say(f"run {run}: {done.how} at entry {done.entry}: {done.shown}" + ("; it is ready again" if step is None else ""))
