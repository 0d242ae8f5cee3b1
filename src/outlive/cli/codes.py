"""Exit codes, and the one place where an error becomes a line that a person can act on."""

from __future__ import annotations

import difflib
import functools
import os
import re
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from outlive.cli.screen import results, say, stdout_for_results
from outlive.model.errors import (
    ApprovalClosed,
    CodeError,
    CommitUnknown,
    LeaseLost,
    NotForkable,
    OutliveError,
    RunExists,
    SettingInvalid,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    TooEarly,
    UnknownAgent,
    UnknownApproval,
    UnknownOperation,
    UnknownQuestion,
    UnknownRun,
)

P = ParamSpec("P")

OK, ERROR, USAGE, FAILED, BLOCKED, GONE, AGAIN, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 5, 75, 130, 143

MEANINGS = {
    OK: "done; the run succeeded",
    ERROR: "an error; the line on stderr says which",
    USAGE: "the command line, a setting or the input is wrong; nothing was done",
    FAILED: "the run failed: its agent raised",
    BLOCKED: "the run is blocked: a person has to decide",
    GONE: "the run was cancelled, or it expired",
    AGAIN: "not now (store busy or full, too early): try again",
    INTERRUPTED: "interrupted (Ctrl-C); runs are kept",
    TERMINATED: "terminated (SIGTERM) before it was done; runs are kept",
}
_OF_STATUS = {"succeeded": OK, "failed": FAILED, "blocked": BLOCKED, "cancelled": GONE, "expired": GONE}

_AGAIN = (StoreBusy, StoreFull, CommitUnknown, LeaseLost, TooEarly)
_USAGE = (SettingInvalid, CodeError, RunExists, NotForkable)

_HINTS: dict[type[Exception], str] = {
    UnknownRun: "`outlive ps --all` lists the runs of this store and tenant; --store and --tenant choose others",
    UnknownAgent: "is the module that registers it in include=[…] of the application?",
    UnknownApproval: "`outlive approvals` lists what waits; --store and --tenant choose others",
    ApprovalClosed: "`outlive approvals` lists what still waits",
    StoreBusy: "another program holds the database; try again, nothing was changed",
    StoreUnavailable: "--store or OUTLIVE_STORE says where runs live; `outlive config` shows what is in force",
    CommitUnknown: "it may have been done: look with `outlive ps` or `outlive show` before you try again",
    LeaseLost: "somebody claimed the run at this moment; `outlive show` says who, then try again",
}

# The codes of the driver by how they begin.
_PLAIN = {
    "SQLITE_CANTOPEN": "the file cannot be opened",
    "SQLITE_READONLY": "it cannot be written to",
    "SQLITE_PERM": "it may not be used",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_NOTADB": "it is no SQLite database",
    "SQLITE_IOERR": "the disk could not be read or written",
    "SQLITE_NOMEM": "there is not enough memory",
}

# Variables that begin as settings do and are none.
_OTHER_VARIABLES = ("OUTLIVE_DEBUG",)
_OTHER_FAMILIES = ("OUTLIVE_SECRET_", "OUTLIVE_TEST_")


def of_status(status: str) -> int:
    """The exit code of `run` for what became of the run."""
    return _OF_STATUS.get(status, ERROR)


def of_error(error: Exception) -> int:
    """The exit code of an error."""
    return AGAIN if isinstance(error, _AGAIN) else USAGE if isinstance(error, _USAGE) else ERROR


def hint(error: Exception) -> str:
    """What to do about it, where the message does not say so."""
    if isinstance(error, UnknownOperation):
        if error.matches:
            return "say more of its id"
        return f"`outlive show {error.run or 'RUN'}` lists its operations"
    if isinstance(error, UnknownQuestion):
        return "say more of its id" if error.matches else f"`outlive questions {error.run}` lists its open questions"
    if isinstance(error, UnknownAgent) and (near := difflib.get_close_matches(error.name, error.known, 1)):
        return f"did you mean {near[0]}?"
    return next((advice for kind, advice in _HINTS.items() if isinstance(error, kind)), "")


def plainly(text: str) -> str:
    """The text with the driver's codes in words."""

    def words(found: re.Match[str]) -> str:
        said = next((said for code, said in _PLAIN.items() if found[1].startswith(code)), "")
        return f"{said}: " if said else ""

    return re.sub(r"\b(SQLITE_[A-Z_]+): ", words, text)


def warn_of_variables() -> None:
    """Name variables that look like settings and are none: a slip of the pen must not go unnoticed."""
    from outlive.app.settings import Settings

    known = [*Settings.variables(), *_OTHER_VARIABLES]
    for name in sorted(os.environ):
        if name.startswith("OUTLIVE_") and name not in known and not name.startswith(_OTHER_FAMILIES):
            near = difflib.get_close_matches(name, known, 1)
            say(f"warning: {name} is not a variable of outlive{f'; did you mean {near[0]}?' if near else ''}")


def guarded(verb: Callable[P, None]) -> Callable[P, None]:
    """A verb whose errors are one line on stderr and an exit code; with `--debug` or OUTLIVE_DEBUG a traceback too."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            warn_of_variables()
            with stdout_for_results():
                verb(*args, **kwargs)
        except OutliveError as error:
            _complain(error, str(error), debug=bool(kwargs.get("debug")))
            raise typer.Exit(of_error(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read us has gone; the interpreter must not complain when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), results().fileno())
            raise typer.Exit(ERROR) from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("typer", "click"):
                raise
            _complain(error, f"{type(error).__name__}: {error}", debug=bool(kwargs.get("debug")))
            raise typer.Exit(ERROR) from None

    return run


def _complain(error: Exception, text: str, *, debug: bool) -> None:
    if debug or os.environ.get("OUTLIVE_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    say(f"error: {plainly(text)}")
    if advice := hint(error):
        say(f"hint: {advice}")
