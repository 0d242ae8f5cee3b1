"""What to type next: for a run that is blocked, the exact commands that let it go on."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from outlive.cli.screen import local, results, value_of

if TYPE_CHECKING:
    from outlive.app.operate import Report
    from outlive.app.settings import Settings
    from outlive.model.operation import OperationRow


_PLACE = "MODULE:ATTR"


def program() -> list[str]:
    """How this command is called from a shell here."""
    if shutil.which("outlive"):
        return ["outlive"]
    beside = Path(sys.executable).with_name("outlive")
    return [str(beside)] if os.access(beside, os.X_OK) else [sys.executable, "-m", "outlive"]


def options(settings: Settings, *, app: bool = False) -> list[str]:
    """The options without which another command would look elsewhere than this one did."""
    found: list[str] = []
    if app and not settings.sources.get("app", "").startswith("OUTLIVE_"):
        found += ["--app", settings.app or _PLACE]
    if settings.sources.get("store") in ("option", "application"):
        found += ["--store", settings.place]
    if settings.sources.get("tenant") == "option":
        found += ["--tenant", settings.tenant]
    if settings.sources.get("unsafe_durability") == "option":
        found += ["--unsafe-durability"]
    return found


def command(*words: str, to: list[str]) -> str:
    """A command as one can paste it into a shell."""
    return shlex.join([*program(), *words, *to])


def blocked(found: Report, settings: Settings) -> Iterator[str]:
    """Why a run is blocked and what a person can do, line by line."""
    row, to = found.row, options(settings)
    yield f"run {row.id} is blocked: {row.reason}: {row.detail}".rstrip(": ")
    for operation in found.in_doubt:
        yield from in_doubt(operation, row.id, settings)
    for operation in found.held:
        yield from held(operation, row.id, settings)
    for operation in found.in_doubt_elsewhere:
        yield from in_doubt(operation, operation.run, settings)
    for operation in found.later:
        yield from later(operation, settings)
    if found.row.reason == "diverged":
        yield "deploy code that fits, and it goes on by itself"
        yield from adoptions(found, settings)
    if not found.in_doubt and not found.held and not found.in_doubt_elsewhere:
        yield "when its cause is mended, let it be tried again:"
        yield f"  {command('retry', row.id, '--why', 'what was mended', to=to)}"


def adoptions(found: Report, settings: Settings) -> Iterator[str]:
    """The ways to accept what differs, as commands; none where only code can mend it."""
    to = options(settings)
    if found.adoptable:
        yield "or accept that the code differs from the log at this step:"
    for one in found.adoptable:
        yield f"  {command('adopt', found.row.id, f'--{one.how}', '--why', 'why that is right', to=to)}   # {one.means}"


def in_doubt(operation: OperationRow, run: str, settings: Settings) -> Iterator[str]:
    """One operation in doubt, and the three decisions about it as commands."""
    yield (
        f"operation {operation.id}: {said(operation)} may have happened; "
        f"first sent {local(operation.first_sent_at)}, key {operation.key}"
    )
    if operation.error:
        yield f"why it is in doubt: {operation.error}"
    yield "find out at the other side whether it happened, then say one of:"
    app = options(settings, app=True)
    for decision, extra, to in (
        ("happened", ["--outcome", "JSON"], app),
        ("did-not-happen", [], options(settings)),
        ("abandon", [], options(settings)),
    ):
        yield f"  {command('resolve', run, operation.id, decision, *extra, '--why', 'how you know', to=to)}"
    if _PLACE in app:
        yield f"happened needs the application, and OUTLIVE_APP is not set: say it for {_PLACE}"


def held(operation: OperationRow, run: str, settings: Settings) -> Iterator[str]:
    """One operation that is held, and the decisions about it as commands."""
    yield f"operation {operation.id}: {said(operation)} is not sent, because another run of its origin has done it"
    yield "take the outcome that it had there, do it once more, or give it up:"
    for decision in ("reuse", "repeat", "abandon"):
        yield f"  {command('resolve', run, operation.id, decision, '--why', 'your reason', to=options(settings))}"


def later(operation: OperationRow, settings: Settings) -> Iterator[str]:
    """One operation whose outcome is to come, and how to tell it where the other side does not."""
    yield f"operation {operation.id}: {said(operation)} {operation.error or 'waits for its outcome'}"
    yield "the other side tells it, or you do if you know it:"
    common = ["--key", "WHAT-TELLS-IT", "--why", "how you know"]
    app = options(settings, app=True)
    yield f"  {command('complete', operation.id, '--happened', 'JSON', *common, to=app)}"
    yield f"  {command('complete', operation.id, '--did-not-happen', *common, to=options(settings))}"


def said(operation: OperationRow) -> str:
    """The call as one would write it; short on a terminal."""
    given = value_of(operation.arguments)
    parts = [f"{key}={value!r}" for key, value in given.items()] if isinstance(given, dict) else [operation.arguments]
    text = f"{operation.tool}({', '.join(parts)})"
    return text if len(text) <= 120 or not results().isatty() else f"{text[:119]}…"
