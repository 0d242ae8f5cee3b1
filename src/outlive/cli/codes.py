"""Exit codes, and the one place where an error becomes a line that a person can act on."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

from outlive.cli.screen import say
from outlive.model.errors import (
    BadArguments,
    CommitUnknown,
    LeaseLost,
    OutliveError,
    SettingInvalid,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    TooEarly,
    UnknownAgent,
    UnknownOperation,
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
_USAGE = (SettingInvalid, BadArguments)

_HINTS: dict[type[Exception], str] = {
    UnknownRun: "`outlive ps --all` lists the runs of this store and tenant; --store and --tenant choose others",
    UnknownAgent: "is the module that registers it in include=[…] of the application?",
    StoreBusy: "another program holds the database; try again, nothing was changed",
    StoreUnavailable: "--store or OUTLIVE_STORE says where runs live; `outlive config` shows what is in force",
    CommitUnknown: "it may have been done: look with `outlive ps` or `outlive show` before you try again",
    LeaseLost: "somebody claimed the run at this moment; `outlive show` says who, then try again",
}


def of_status(status: str) -> int:
    """The exit code of `run` for what became of the run."""
    return _OF_STATUS.get(status, ERROR)


def of_error(error: Exception) -> int:
    """The exit code of an error."""
    return AGAIN if isinstance(error, _AGAIN) else USAGE if isinstance(error, _USAGE) else ERROR


def hint(error: Exception) -> str:
    """What to do about it, where the message does not say so."""
    if isinstance(error, UnknownOperation):
        return f"`outlive show {error.run}` lists its operations"
    return next((advice for kind, advice in _HINTS.items() if isinstance(error, kind)), "")


def guarded(verb: Callable[P, None]) -> Callable[P, None]:
    """A verb whose errors are one line on stderr and an exit code; with `--debug` or OUTLIVE_DEBUG a traceback too."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
        except OutliveError as error:
            _complain(error, str(error), debug=bool(kwargs.get("debug")))
            raise typer.Exit(of_error(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read us has gone; the interpreter must not complain when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
    say(f"error: {text}")
    if advice := hint(error):
        say(f"hint: {advice}")
