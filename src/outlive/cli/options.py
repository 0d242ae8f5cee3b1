"""Options that verbs share, each with one name, one meaning and one help text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlive.model.ids import unnamed

if TYPE_CHECKING:
    from outlive.app.settings import Settings


def name(given: object) -> object:
    """A name as it was given: a text that can be read, never empty. Several names, or none given, pass too."""
    for one in given if isinstance(given, list | tuple) else (given,):
        if isinstance(one, str) and (why := unnamed(repr(one), one)):
            raise typer.BadParameter(why)
    return given


# What every database has room for.
_MOST_INTEGER = 2**63 - 1

Store = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where runs live [OUTLIVE_STORE; sqlite:///outlive.db].", show_default=False),
]
Tenant = Annotated[
    str | None,
    typer.Option(metavar="NAME", callback=name, help="Whose runs [OUTLIVE_TENANT; default].", show_default=False),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Unsafe = Annotated[
    bool,
    typer.Option("--unsafe-durability", help="Accept a database that may lose what it acknowledged."),
]
App = Annotated[
    str | None,
    typer.Option(
        "--app", "-a", metavar="MODULE:ATTR", show_default=False,
        help="The application; the current directory is searched too [OUTLIVE_APP].",
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs; its fields are in docs/cli.md.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", callback=name, help="The id of the run.", show_default=False)
]
Who = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", callback=name, help="Who decides, for the log [the user of this machine].", show_default=False
    ),
]
Why = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept in the log.", show_default=False)]
WhyUnlessDry = Annotated[
    str | None,
    typer.Option(
        "--why", metavar="TEXT", show_default=False,
        help="Why; it is kept in the log. To be said, but with --dry-run.",
    ),
]  # fmt: skip
Wait = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", show_default=False, help="How long to wait until it is so, for each run; 0s: not at all."
    ),
]  # fmt: skip
Role = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", callback=name, show_default=False,
        help="The role in which it is decided; an application with a directory of roles checks it.",
    ),
]  # fmt: skip
ApprovalArgument = Annotated[
    str,
    typer.Argument(metavar="ID", callback=name, help="The approval's id, or its beginning.", show_default=False),
]
Lease = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", show_default=False,
        help="How long a run stays this worker's without renewal, so how fast another takes over [OUTLIVE_LEASE; 30s].",
    ),
]  # fmt: skip
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1, max=1_000_000, metavar="N", help="Runs driven at once [OUTLIVE_CONCURRENCY; 100].", show_default=False
    ),
]  # fmt: skip

INPUT_HELP = "JSON, @file.json, or - for stdin. A word that is not JSON is a string, if the agent takes one."
InputArgument = Annotated[str | None, typer.Argument(metavar="INPUT", help=INPUT_HELP, show_default=False)]
AgentArgument = Annotated[
    str, typer.Argument(metavar="AGENT", callback=name, help="The agent's name.", show_default=False)
]
Id = Annotated[
    str | None,
    typer.Option(metavar="RUN", callback=name, show_default=False,
                 help="The run's id. The same id and input is the same run, however often it is started."),
]  # fmt: skip
Queue = Annotated[str, typer.Option(metavar="NAME", callback=name, help="The queue it waits in.")]
Priority = Annotated[int, typer.Option(min=-_MOST_INTEGER, max=_MOST_INTEGER, metavar="N", help="Higher goes first.")]
Deadline = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="When it expires, from now: 30s, 10m, 2h, 3d.", show_default=False),
]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="K=V", help="A label; may be repeated.", show_default=False)
]
Principal = Annotated[str, typer.Option(metavar="NAME", help="On whose authority it acts.", show_default=False)]
Purpose = Annotated[str, typer.Option(metavar="TEXT", help="For what purpose it acts.", show_default=False)]


def said(why: str | None, *, dry_run: bool) -> str:
    """Why it is done: whoever acts on runs says it. Raises typer.BadParameter."""
    if why is None and not dry_run:
        raise typer.BadParameter("say why, in --why: it is kept in the log")
    return why or ""


def text_of(argument: str | None, what: str) -> str | None:
    """What an argument stands for: itself, the content of `@file`, or for `-` all of stdin."""
    if argument == "-":
        return sys.stdin.read()
    if argument is None or not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise typer.BadParameter(f"{what}: {argument[1:]} cannot be read: {why}") from None


def labels_of(given: Sequence[str] | None, option: str = "--label") -> dict[str, str]:
    """`k=v` options as a dictionary."""
    found: dict[str, str] = {}
    for one in given or ():
        key, equals, value = one.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{option} {one!r}: say key=value")
        found[key] = value
    return found


def time_of(given: str | None, option: str) -> timedelta | None:
    """`500ms`, `30s`, `10m`, `2h`, `3d` as a length of time."""
    from outlive.app.settings import duration

    try:
        return None if given is None else duration(given)
    except ValueError as error:
        raise typer.BadParameter(f"{option} {given!r}: {error}") from None


def span_of(given: str, option: str) -> timedelta:
    """As `time_of`, of what is always given; *0s* is nothing."""
    return timedelta(0) if given in ("0", "0s") else time_of(given, option) or timedelta(0)


def user() -> str:
    """Who uses this machine, for the log."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown user"


def set_up_logging(settings: Settings) -> None:
    """Log to stderr at the level that is set; an application that has set logging up itself keeps its own."""
    import logging

    from outlive.model.errors import SettingInvalid

    level = settings.log_level
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        source = settings.sources.get("log_level", "default")
        raise SettingInvalid(name="log_level", value=level, source=source, why="say DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
