"""Takes secret values out of text that is about to be written, in whatever usual encoding they stand there.

A registered value is never forgotten while the process lives: a log line may come late. Text that was cut, compressed
or encrypted before it got here cannot be recognised.
"""

from __future__ import annotations

import html
import json
import logging
import re
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from urllib.parse import quote, quote_plus
from weakref import WeakSet

from outlive.model.errors import SettingInvalid

SHORTEST = 4


class Scrubber:
    """Knows the values to hide; any thread may register while others scrub."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Replaced, never changed: a thread that scrubs goes on with the one it has read.
        self._names: dict[str, str] = {}

    def register(self, name: str, value: str) -> None:
        """Hide `value` from now on as `[secret name]`. Registering it again is free; the last name given counts.

        Raises SettingInvalid for a value under 4 characters: hiding it would mangle every text.
        """
        if self._names.get(value) == name:
            return
        if len(value) < SHORTEST:
            why = f"a secret of under {SHORTEST} characters cannot be told from other text"
            raise SettingInvalid(name=name, value="…", source="secret", why=why)
        with self._lock:
            spellings, before = _spellings(value), self._names.get(value)
            others = {key: of for key, of in self._names.items() if key not in spellings or of != before}
            self._names = {**dict.fromkeys(spellings, name), **others, value: name}

    @property
    def active(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self._names)

    def scrub(self, text: str) -> str:
        """The text with every registered value replaced, longest first; the same object where there is none."""
        names = self._names
        found = [spelling for spelling in names if spelling in text]
        if not found:
            return text
        # In one pass, so that what was put in is not searched again.
        pattern = "|".join(map(re.escape, sorted(found, key=len, reverse=True)))
        return re.sub(pattern, lambda match: f"[secret {names[match.group()]}]", text)

    def split(self, text: str) -> tuple[str, str]:
        """For text that goes on: what can be told now, scrubbed, and the end that may be the beginning of a value.

        What is kept comes before whatever is added: a value that comes in pieces is hidden as one in one piece is.
        """
        names = self._names
        kept = max((_overlap(text, spelling) for spelling in names), default=0)
        cut = len(text) - kept
        whole = [spelling for spelling in names if spelling in text]
        if kept and whole:
            pattern = "|".join(map(re.escape, sorted(whole, key=len, reverse=True)))
            # A value that ends in what is kept is kept as a whole.
            cut = next((one.start() for one in re.finditer(pattern, text) if one.start() < cut < one.end()), cut)
        return self.scrub(text[:cut]), text[cut:]

    def finds(self, text: str) -> bool:
        """Whether a registered value stands in the text."""
        return any(spelling in text for spelling in self._names)


def _spellings(value: str) -> set[str]:
    """The value as it stands in plain text, JSON, `repr`, URLs, base64 at any offset, and hex."""
    plain = {value, repr(value)[1:-1]}
    plain |= {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    # JSON inside JSON is how a payload stands in a log line; some writers escape the slash.
    plain |= {
        html.escape(value),
        re.sub(r"\\u[0-9a-f]{4}", lambda found: "\\u" + found.group()[2:].upper(), json.dumps(value)[1:-1]),
    }
    plain |= {json.dumps(one)[1:-1] for one in list(plain)} | {one.replace("/", "\\/") for one in list(plain)}
    raw = value.encode("utf-8", "surrogatepass")
    quoted = {quote(raw), quote(raw, safe=""), quote_plus(raw)}
    quoted |= {re.sub(r"%[0-9A-F]{2}", lambda found: found.group().lower(), one) for one in list(quoted)}
    return plain | quoted | set(_base64(raw)) | {raw.hex(), raw.hex().upper()}


def _overlap(text: str, value: str) -> int:
    """How many characters at the end of the text may be the beginning of the value."""
    last = text[-(len(value) - 1) :]
    return next((len(last) - at for at in range(len(last)) if value.startswith(last[at:])), 0)


def _base64(raw: bytes) -> Iterator[str]:
    """The characters that the value alone decides, for each of the three offsets at which it may begin.

    What is too short to be told from chance is left out, except at offset 0 (the value encoded by itself).
    """
    for encode in (b64encode, urlsafe_b64encode):
        yield encode(raw).decode().rstrip("=")
        for offset in range(3):
            text = encode(bytes(offset) + raw).decode().rstrip("=")
            first = (offset * 8 + 5) // 6
            decided = text[first : (offset + len(raw)) * 8 // 6]
            if len(decided) >= 2 * SHORTEST:
                yield decided


class ScrubbingFilter(logging.Filter):
    """Scrubs message, arguments, extras and exception text of every record that passes; drops none.

    Put it on handlers: a filter of a logger does not see the records of the loggers below it.
    """

    def __init__(self, scrubber: Scrubber) -> None:
        super().__init__()
        self._scrubber = scrubber

    def filter(self, record: logging.LogRecord) -> bool:
        if self._scrubber.active:
            self._message(record)
            self._exception(record)
            for name in vars(record).keys() - _OWN:
                setattr(record, name, self._clean(getattr(record, name)))
        return True

    def _message(self, record: logging.LogRecord) -> None:
        """A record in which nothing is hidden keeps its arguments: some handlers group by the bare message."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = f"{record.msg} {record.args!r}"
        clean = self._scrubber.scrub(message)
        if clean != message or self._scrubber.finds(f"{record.msg} {record.args!r}"):
            record.msg, record.args = clean, None

    def _exception(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            raised = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            if self._scrubber.finds(raised):
                # The exception itself still holds the value: no later handler may format it anew.
                record.exc_text, record.exc_info = raised, None
        record.exc_text = record.exc_text and self._scrubber.scrub(record.exc_text)
        record.stack_info = record.stack_info and self._scrubber.scrub(record.stack_info)

    def _clean(self, held: object) -> object:
        if isinstance(held, str):
            return self._scrubber.scrub(held)
        if isinstance(held, Mapping):
            return {self._clean(key): self._clean(item) for key, item in held.items()}
        if isinstance(held, list | tuple):
            return [self._clean(item) for item in held]
        shown = repr(held)
        return self._scrubber.scrub(shown) if self._scrubber.finds(shown) else held


_OWN = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}


_scrubbing: WeakSet[Scrubber] = WeakSet()


class _Records:
    """Makes log records as before, without the secrets of any scrubber that is in use."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: object, **kwargs: object) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*args, **kwargs)
        for scrubber in list(_scrubbing):
            if scrubber.active:
                ScrubbingFilter(scrubber).filter(record)
        return record


def scrub_logs(scrubber: Scrubber) -> None:
    """Keep the scrubber's secrets out of every log line of this process, whichever logger and handler it goes through.

    It works for as long as the scrubber is in use. What is printed, and fields given as `extra`, are not log lines.
    """
    _scrubbing.add(scrubber)
    made = logging.getLogRecordFactory()
    if not isinstance(made, _Records):
        logging.setLogRecordFactory(_Records(made))
