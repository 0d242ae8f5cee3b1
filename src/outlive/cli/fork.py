"""`outlive fork`: a new run that begins with what another one has behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import put, say

if TYPE_CHECKING:
    from outlive.model.run import RunRow

EXAMPLES = (
    "outlive fork dunning-2026-03 --why 'the last step again, with the new release'",
    "outlive fork dunning-2026-03 --at 12 --id dunning-2026-03-b --why 'from before the letter'",
)

Repeat = Annotated[
    bool,
    typer.Option("--repeat-effects", help="Do again, without asking, what the parent has done; it is recorded."),
]
NewId = Annotated[
    str | None,
    typer.Option("--id", metavar="RUN", callback=options.name, show_default=False,
                 help="The new run's id. The same id twice is the same run."),
]  # fmt: skip


def fork(
    *,
    run: options.RunArgument,
    at: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="SEQ", show_default=False,
            help="The last entry of its history, as in `outlive log` [the last one behind which nothing is open].",
        ),
    ] = None,
    id: NewId = None,
    repeat_effects: Repeat = False,
    why: options.Why,
    who: options.Who = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Fork a run that has ended or is paused.

    The new run has the log of the old one up to an entry as its history, replays that, and goes on for itself. What the
    old one has done behind that entry is not done again: the new run is blocked there until somebody decides. The id of
    the new run is printed.
    """
    made = make(
        run, at, id, why, who, {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None},
        repeat_effects=repeat_effects,
    )  # fmt: skip
    put(made.id)
    say(f"it is a fork of {run} at entry {made.fork_seq}, and ready")


def make(
    run: str, at: int | None, id: str | None, why: str, who: str | None, given: dict[str, object], *,
    repeat_effects: bool,
) -> RunRow:  # fmt: skip
    """The fork. Raises as `operate.fork`."""
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, **given)

    async def go() -> RunRow:
        async with operate.reading(settings) as opened:
            return await operate.fork(
                opened, settings.tenant, run, at=at, who=who or options.user(), why=why, id=id,
                repeat_effects=repeat_effects,
            )  # fmt: skip

    return asyncio.run(go())
