"""`outlive questions`: what runs wait to be told by people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import iso, local, plain, put_json, put_table, say, span

if TYPE_CHECKING:
    from outlive.app.mail import Question

EXAMPLES = ("outlive questions", "outlive questions refund-7", "outlive questions --role ops --json")


def questions(
    *,
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", callback=options.name, help="Only those of this run.", show_default=False),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=options.name, help="Only those to this role.", show_default=False),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="How many runs are looked at, newest first.")
    ] = 1000,
    json: options.Json = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """List the open questions of runs, and to whom they are put.

    They are read from the logs of the runs that have not ended. `outlive answer` answers one.
    """
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)

    async def read() -> tuple[list[Question], int]:
        async with operate.reading(settings) as opened:
            return await operate.questions(opened, settings.tenant, run, limit=limit), await opened.now()

    found, now = asyncio.run(read())
    found = [one for one in found if role in (None, one.role)]
    if json:
        put_json([question_json(one) for one in found], indent=2)
    elif found:
        _print(found, now)
    else:
        say("no open questions")


def question_json(one: Question) -> dict[str, object]:
    """A question for programs."""
    return {
        "run": one.run, "id": one.id, "question": one.text, "role": one.role, "expects": one.expects,
        "asked_at": iso(one.asked_at), "until": iso(one.until or None), "answered_by": one.answered_by or None,
    }  # fmt: skip


def _print(found: list[Question], now: int) -> None:
    from rich.text import Text

    cells = [
        [
            Text(plain(one.run)), Text(plain(one.id)), Text(plain(one.role)), Text(span(now - one.asked_at)),
            Text(local(one.until) if one.until else "-"), Text(plain(_said(one))),
        ]
        for one in found
    ]  # fmt: skip
    put_table(("run", "id", "role", "age", "until", "question"), cells)


def _said(one: Question) -> str:
    expected = f" ({one.expects})" if one.expects else ""
    answered = f"; answered by {one.answered_by}, not read yet" if one.answered_by else ""
    return f"{one.text}{expected}{answered}"
