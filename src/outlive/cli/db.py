"""`outlive db`: make what a store needs, bring it up to date, see whether this release can work on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from outlive.cli import advice, codes, options
from outlive.cli.screen import console, iso, local, plain, put, put_json, say

if TYPE_CHECKING:
    from outlive.app.database import Change, Health
    from outlive.app.settings import Settings

EXAMPLES = {
    "init": ("outlive db init", "outlive db init --store 'postgresql://ada@db/shop?schema=outlive'"),
    "upgrade": (
        "outlive db upgrade            # before the workers of the new release start",
        "outlive db upgrade --finish   # after the last process of the old one has ended",
    ),
    "check": ("outlive db check", "outlive db check --json"),
}


def init(
    *, store: options.Store = None, unsafe_durability: options.Unsafe = False, debug: options.Debug = False
) -> None:
    """Make what a store needs in an empty database.

    On PostgreSQL that is the schema that ?schema= names, with its tables; with SQLite the file. A store that is there
    is left as it is; tables of another program are refused. The first start, run or worker does the same by itself.
    """
    import asyncio

    from outlive.app import database

    done = asyncio.run(database.init(_settings(store, unsafe_durability=unsafe_durability), _told))
    if done.applied:
        put(f"made {done.store}, version {done.version}")
    else:
        put(f"nothing to do: {done.store} is there, version {done.version}")


def upgrade(
    *,
    finish: Annotated[
        bool, typer.Option("--finish", help="Also take away what the release before needed; refused while it works.")
    ] = False,
    store: options.Store = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Bring a store to this release's schema.

    Without --finish it only adds, and workers of the release before go on beside those of this one; start, run and
    worker do as much by themselves. With --finish that release cannot use the store any more. One process at a time
    changes it; each file is applied in full or not at all.
    """
    import asyncio

    from outlive.app import database

    settings = _settings(store, unsafe_durability=unsafe_durability)
    done = asyncio.run(database.upgrade(settings, _told, finish=finish))
    if not done.applied and not done.older:
        put(f"nothing to do: {done.store} has version {done.version}")
    if done.older:
        _refuse(done)
    elif done.left:
        again = advice.command("db", "upgrade", "--finish", to=advice.options(settings))
        say(f"left for later, as the release before needs what it takes away: {', '.join(done.left)}")
        say(f"when the last process of that release has ended: {again}")


def check(
    *,
    json: options.Json = False,
    store: options.Store = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """See whether this release can work on the store; changes nothing.

    Is it reachable, is its schema the right one, does it keep what it acknowledges? Exits with 0 only if so.
    """
    import asyncio

    from outlive.app import database

    found = asyncio.run(database.check(_settings(store, unsafe_durability=unsafe_durability)))
    if json:
        put_json(_json(found), indent=2)
    else:
        for name, value in _facts(found):
            console().print(plain(f"{name + ':':<13}{value}"))
    for problem in found.problems:
        say(f"error: {codes.plainly(problem)}")
    raise typer.Exit(codes.OK if found.usable else codes.ERROR)


def _settings(store: str | None, *, unsafe_durability: bool) -> Settings:
    from outlive.app import operate

    return operate.settings_of(None, store=store, unsafe_durability=unsafe_durability or None)


def _told(name: str, step: Literal["applying", "applied"]) -> None:
    if step == "applying":
        say(f"applying {name}")
    else:
        put(f"applied {name}")


def _refuse(done: Change) -> None:
    workers = ", ".join(f"{one.owner} (pid {one.pid}, seen {local(one.seen_at)})" for one in done.older)
    say(f"error: {', '.join(done.left)} would take away what live workers of an older release need: {workers}")
    say("hint: end them and try again; one that was killed counts until its leases have lapsed, 5 min at least")
    raise typer.Exit(codes.AGAIN)


def _json(found: Health) -> dict[str, object]:
    return {
        "store": found.store, "usable": found.usable, "problems": list(found.problems),
        "reachable": found.server is not None, "server": found.server, "version": found.version,
        "known": found.known, "applied": list(found.applied), "pending": list(found.pending),
        "to_finish": list(found.to_finish), "unsafe": list(found.unsafe),
        "warnings": list(found.warnings),
        "older_workers": [
            {"owner": one.owner, "pid": one.pid, "seen_at": iso(one.seen_at)} for one in found.older
        ],
    }  # fmt: skip


def _facts(found: Health) -> Iterator[tuple[str, str]]:
    yield "store", found.store
    yield "server", found.server or "not reachable"
    if found.server is not None:
        yield "schema", f"{_version(found)}; this release knows up to version {found.known}"
    for name, values in (
        ("pending", found.pending), ("to finish", found.to_finish),
        ("old workers", [f"{one.owner} (pid {one.pid}, seen {local(one.seen_at)})" for one in found.older]),
    ):  # fmt: skip
        if values:
            yield name, ", ".join(values)
    if found.version is not None:
        yield "durability", f"unsafe: {', '.join(found.unsafe)}" if found.unsafe else "keeps what it acknowledges"
    for warning in found.warnings:
        yield "warning", warning
    yield "usable", "yes" if found.usable else "no"


def _version(found: Health) -> str:
    return "nothing of ours" if found.version is None else f"version {found.version}"
