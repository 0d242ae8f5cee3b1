"""`outlive import`: a run from a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import put, say

if TYPE_CHECKING:
    from outlive.app.carry import Carried

EXAMPLES = (
    "outlive import dunning.jsonl",
    "outlive import dunning.jsonl --tenant restored",
    "outlive import -",
)

FILE_HELP = "A bundle that `outlive export` wrote, or - for stdin."


def import_(
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help=FILE_HELP, show_default=False)],
    store: options.Store = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=options.name, help="Whose it shall be [the tenant it came from].",
            show_default=False,
        ),
    ] = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Store a run that was exported.

    All of it or nothing: a bundle that was cut off, put in another order or altered is refused with its line. The
    tenant has to have the key of the bundle, or none yet and the bundle carries it. A run that had not ended arrives
    paused: no worker claims it before `outlive resume`. One that is there already, with the same log, is left. Of a
    fork whose parent is not there it warns: import that too, before it is resumed or forked.
    """
    import asyncio

    from outlive.app import carry, operate
    from outlive.model.ids import Tenant

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    whose = Tenant(tenant) if tenant is not None else None

    async def read() -> Carried:
        with opened(file) as lines:
            async with operate.reading(settings) as there:
                return await carry.take_in(there, lines, whose)

    found = asyncio.run(read())
    if not found.added:
        put(f"nothing to do: run {found.run} of tenant {found.tenant} is there, with this log")
        return
    put(f"imported run {found.run} into tenant {found.tenant}: {found.entries} entries, {found.status}")
    if not found.ended:
        say("it had not ended, and is paused: resume it only if it does not go on where it came from")
    if found.missing:
        which = " and ".join(found.missing)
        say(f"warning: what run {which} did, of which it is a fork, is not known here, and it would do the same again")
    if found.forked:
        say("warning: it was forked: what its forks did is known here only when they are imported too")


@contextmanager
def opened(file: str) -> Iterator[IO[bytes]]:
    """The lines of a file, or of stdin. A BadBundle that is raised meanwhile names the file."""
    import sys

    from outlive.model.errors import BadBundle

    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        found = open(file, "rb")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from None
    with found:
        try:
            yield found
        except BadBundle as bad:
            raise BadBundle(line=bad.line, why=bad.why, file=file) from None
