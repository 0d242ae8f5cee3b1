"""Exceptions as data: what is written when user code raises, and what an agent is given, live and on replay alike."""

from __future__ import annotations

import json
from collections.abc import Mapping

from outlive.log.codec import Codec
from outlive.log.kinds import ErrorRecord
from outlive.model.errors import Abandoned, NotSerialisable, OutliveError, StepFailed, ToolFailed, UndecodableEntry
from outlive.secret.scrubber import Scrubber

_LONGEST = 4000


def record(error: BaseException, scrubber: Scrubber) -> ErrorRecord:
    """Write an exception down: type, message, and what of its arguments and attributes is plain data; scrubbed."""
    message = writable(str(error) or type(error).__name__)
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
    return ErrorRecord(type=type(error).__name__, message=scrubber.scrub(message)[:_LONGEST], data=kept)


def writable(text: str) -> str:
    """Text that can be stored: lone surrogates and NUL, which no database takes, are replaced."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def declared(error: ErrorRecord, raises: tuple[type[Exception], ...]) -> Exception | None:
    """The exception that a tool declared, rebuilt from data without running its constructor.

    None if it is none of them.
    """
    for kind in raises:
        if kind.__name__ == error.type:
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


def retry_after(error: BaseException) -> float:
    """Seconds that the other side asked us to wait: a `retry_after` attribute, or that header of a response."""
    asked: object = getattr(error, "retry_after", None)
    if asked is None:
        headers: object = getattr(getattr(error, "response", None), "headers", None)
        asked = headers.get("retry-after") if isinstance(headers, Mapping) else None
    try:
        return max(0.0, min(float(str(asked)), 24 * 3600.0)) if asked is not None else 0.0
    except ValueError:
        return 0.0


def _plain(value: object) -> tuple[bool, object]:
    if isinstance(value, str):
        return True, writable(value)
    if value is None or isinstance(value, bool | int):
        return True, value
    if isinstance(value, float | list | tuple | dict):
        try:
            return True, json.loads(writable(json.dumps(value, allow_nan=False, ensure_ascii=False)))
        except (TypeError, ValueError):
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
