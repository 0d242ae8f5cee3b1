"""Exceptions as data: what is written when user code raises, and what an agent is given, live and on replay alike."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from types import FrameType

from outlive.log.codec import Codec
from outlive.log.fold import Call
from outlive.log.kinds import ErrorRecord, Shared
from outlive.model.errors import (
    Abandoned,
    Compensated,
    KeyConflict,
    NotSerialisable,
    OutliveError,
    StepFailed,
    ToolFailed,
    UndecodableEntry,
)
from outlive.secret.scrubber import Scrubber

_LONGEST = 4000


def record(error: BaseException, scrubber: Scrubber, raises: tuple[type[Exception], ...] = ()) -> ErrorRecord:
    """Write an exception down: type, message, and what of its arguments and attributes is plain data; scrubbed.

    Never raises, whatever the exception does when it is looked at.
    """
    name = type(error).__name__
    declared = next((kind.__name__ for kind in raises if isinstance(error, kind)), "")
    try:
        message = writable(str(error) or name)
    except BaseException as broken:  # noqa: BLE001 - an exception of a user's may do anything
        message = f"(its message cannot be shown: {type(broken).__name__})"
    try:
        kept = _data(error, scrubber)
    except BaseException:  # noqa: BLE001 - as above: then it goes without its data
        kept = {}
    return ErrorRecord(
        type=name, message=scrubber.scrub(message)[:_LONGEST], data=kept, declared=declared, at=place(error)
    )  # fmt: skip


def is_users(frame: FrameType) -> bool:
    """Whether it is no code of ours or of the standard library, which is how it was done and not where."""
    name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return name != "outlive" and name not in sys.stdlib_module_names


def place(error: BaseException) -> str:
    """Where it was raised, as the line of a user's code; empty for what only our own code has seen."""
    found, trace = "", error.__traceback__
    while trace is not None:
        if is_users(trace.tb_frame):
            found = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _data(error: BaseException, scrubber: Scrubber) -> dict[str, object]:
    data: dict[str, object] = {}
    arguments = [_plain(one) for one in error.args]
    if arguments and all(ok for ok, _ in arguments):
        data["args"] = [value for _, value in arguments]
    held = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")}
    state = {name: value for name, (ok, value) in held.items() if ok}
    if state:
        data["state"] = state
    text = scrubber.scrub(json.dumps(data))
    kept: dict[str, object] = json.loads(text) if len(text) <= _LONGEST else {}
    return kept


def writable(text: str) -> str:
    """Text that can be stored: lone surrogates and NUL, which no database takes, are replaced."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def declared(error: ErrorRecord, raises: tuple[type[Exception], ...]) -> Exception | None:
    """The exception that a tool declared, rebuilt from data without running its constructor.

    None if it is none of them.
    """
    for kind in raises:
        if kind.__name__ == (error.declared or error.type):
            arguments, state = error.data.get("args", [error.message]), error.data.get("state", {})
            rebuilt = kind.__new__(kind)
            rebuilt.args = tuple(arguments) if isinstance(arguments, list) else (error.message,)
            if isinstance(state, dict):
                rebuilt.__dict__.update(state)
            return rebuilt
    return None


def step_failed(name: str, error: ErrorRecord) -> StepFailed:
    """What an agent catches for a step."""
    return StepFailed(name=name, type=error.type, message=error.message, data=error.data)


def tool_failed(name: str, operation: str, error: ErrorRecord, status: str) -> OutliveError:
    """What an agent catches for a tool that did not act, or an operation that a person abandoned."""
    if status == "abandoned":
        return Abandoned(name=name, operation=operation, reason=error.message)
    return ToolFailed(name=name, type=error.type, message=error.message, data=error.data)


def barred(call: Call, fact: Shared) -> OutliveError:
    """What an agent catches for a call whose business key stands for something that it gets no outcome of."""
    why, key = call.error.message if call.error is not None else "", fact.business_shown
    if fact.status == "abandoned":
        return Abandoned(name=call.name, operation=fact.theirs, reason=why)
    if fact.status == "compensated":
        return Compensated(key=key, run=fact.run, operation=fact.theirs)
    return KeyConflict(key=key, run=fact.run, operation=fact.theirs, why=why)


def retry_after(error: BaseException) -> float:
    """Seconds that the other side asked us to wait: a `retry_after` attribute, or that header of a response."""
    try:
        asked: object = getattr(error, "retry_after", None)
        if asked is None:
            headers: object = getattr(getattr(error, "response", None), "headers", None)
            asked = headers.get("retry-after") if isinstance(headers, Mapping) else None
        seconds = float(str(asked)) if asked is not None else 0.0
        return max(0.0, min(seconds, 24 * 3600.0)) if seconds == seconds else 0.0  # noqa: PLR0124 - not a number
    except BaseException:  # noqa: BLE001 - an exception of a user's may do anything when it is looked at
        return 0.0


def _plain(value: object) -> tuple[bool, object]:
    if isinstance(value, str):
        return True, writable(value)
    if value is None or isinstance(value, bool | int):
        return True, value
    if isinstance(value, float | list | tuple | dict):
        try:
            return True, json.loads(writable(json.dumps(value, allow_nan=False, ensure_ascii=False)))
        except (TypeError, ValueError, RecursionError):
            return False, None
    return False, None


def clean(scrubber: Scrubber, codec: Codec[object], text: str, where: str) -> str:
    """A value's JSON without secrets. Raises NotSerialisable where it could not be read back without the secret."""
    scrubbed = scrubber.scrub(text)
    if scrubbed == text:
        return text
    try:
        codec.decode(scrubbed, where=where)
    except UndecodableEntry:
        why = "it holds the value of a secret where no text can take its place"
        raise NotSerialisable(what="a value", where=where, why=why) from None
    return scrubbed
