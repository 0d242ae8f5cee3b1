"""Settings: one frozen record. An argument beats an option, an option beats `OUTLIVE_*`, that beats the default."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from typing import Any, cast

from outlive.duty.retention import DEFAULT_AGES, Ages
from outlive.duty.route import Routes, parse_routes
from outlive.duty.telling import DEADLINE_LEAD
from outlive.model.errors import SettingInvalid
from outlive.model.run import ENDED, Status
from outlive.secret.urls import without_password

LONGEST = timedelta(days=36_500)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> timedelta:
    """`500ms`, `30s`, `10m`, `2h`, `3d`. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text.strip())
    if not found:
        raise ValueError("a duration is a number with a unit: 500ms, 30s, 10m, 2h, 3d")
    seconds = float(found[1]) * _UNITS[found[2]]
    if seconds > LONGEST.total_seconds():
        raise ValueError(f"at most {LONGEST.days}d")
    return timedelta(seconds=seconds)


def shown(value: object) -> str:
    """A setting as one would write it."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _truth(text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.strip().lower() not in words:
        raise ValueError("say true or false")
    return words[text.strip().lower()]


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,7}", text.strip()) or int(text) < 1:
        raise ValueError("say a number from 1 to 9999999")
    return int(text)


def _name(text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > 200:
        raise ValueError("it has to be a printable text of 1 to 200 characters")
    return text


def _url(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty; say sqlite:///path, or leave it out")
    return text


def _listen(text: str) -> str:
    if text not in ("", "no") and text.split(":", 1)[0] not in ("postgresql", "postgres"):
        raise ValueError("say postgresql://user@host/database, no, or nothing")
    return text


def _ages(text: str) -> Ages:
    if text.strip() == "off":
        return Ages(())
    found: dict[Status, timedelta] = {}
    keys: timedelta | None = None
    for part in text.split(","):
        name, _, given = part.partition("=")
        status = next((one for one in ENDED if one == name.strip()), None)
        again = keys is not None if name.strip() == "keys" else status is None or status in found
        if again:
            raise ValueError(
                f"{part.strip()!r}: say succeeded=30d,failed=90d (or cancelled, expired, keys), each once; or off"
            )
        age = duration(given)
        if age < timedelta(minutes=1):
            raise ValueError(f"{part.strip()!r}: a {'run' if status else 'key'} is kept for 1m at least")
        if status is None:
            keys = age
        else:
            found[status] = age
    return Ages(tuple(found.items()), keys)


def _lease(text: str) -> timedelta:
    lease = duration(text)
    if lease < timedelta(milliseconds=500):
        raise ValueError("a lease is at least 500ms")
    return lease


def _say(help: str, parse: Callable[[str], object] = str) -> dict[str, object]:
    return {"help": help, "parse": parse}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a process of this program can be told."""

    store: str = field(
        default="sqlite:///outlive.db", repr=False, metadata=_say("where runs live; sqlite:/// or postgresql://", _url)
    )
    app: str = field(default="", metadata=_say("the application, as module:attribute"))
    tenant: str = field(default="default", metadata=_say("whose runs", _name))
    lease: timedelta = field(
        default=timedelta(seconds=30), metadata=_say("how long a worker owns a run without renewing", _lease)
    )
    concurrency: int = field(default=100, metadata=_say("runs that one worker drives at once", _count))
    drain: timedelta = field(
        default=timedelta(seconds=30), metadata=_say("how long SIGTERM waits for calls in flight", duration)
    )
    grace: timedelta = field(
        default=timedelta(seconds=30), metadata=_say("how long a run may clean up after its deadline", duration)
    )
    stall_limit: timedelta = field(
        default=timedelta(minutes=5), metadata=_say("how long a stuck event loop keeps its runs", duration)
    )
    stall_notice: timedelta = field(
        default=timedelta(seconds=30),
        metadata=_say("how long an event loop is stuck before that is made known", duration),
    )
    build: str = field(
        default="", metadata=_say("what tells this release of the code apart; default: a digest of it", _name)
    )
    max_lapses: int = field(
        default=10, metadata=_say("leases in a row that may lapse before a run counts as poison", _count)
    )
    secrets: str = field(default="", metadata=_say("directory with one file per secret"))
    listen_url: str = field(
        default="",
        repr=False,
        metadata=_say("where a worker listens for hints, if not at the store's URL (PostgreSQL); no: nowhere", _listen),
    )
    retention: Ages = field(
        default=DEFAULT_AGES,
        metadata=_say("how long after its end a run is kept, by status; one that is not named for ever; or off", _ages),
    )
    notify: Routes = field(
        default=Routes(), metadata=_say("who is told, as JSON: name to url and secret, or to command", parse_routes)
    )
    deadline_lead: timedelta = field(
        default=DEADLINE_LEAD,
        metadata=_say("how long before its deadline somebody is told of a run; a tenth of its time at most", duration),
    )
    unsafe_durability: bool = field(
        default=False, metadata=_say("accept a database that may lose acknowledged commits", _truth)
    )
    log_level: str = field(default="INFO", metadata=_say("DEBUG, INFO, WARNING or ERROR", str.upper))
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **given: object) -> Settings:
        """Settings from arguments (None: not given), then the environment, then defaults. Raises SettingInvalid."""
        environ = os.environ if environ is None else environ
        values: dict[str, object] = {}
        sources: dict[str, str] = {}
        for variable, one in cls._by_variable().items():
            if given.get(one.name) is not None:
                source, value = "option", given[one.name]
            elif variable in environ:
                source, value = variable, environ[variable]
            else:
                sources[one.name] = "default"
                continue
            sources[one.name] = source
            values[one.name] = _parsed(one.name, value, source, one.metadata["parse"])
        unknown = sorted(set(given) - {one.name for one in cls._by_variable().values()})
        if unknown:
            raise SettingInvalid(name=unknown[0], value=str(given[unknown[0]]), source="option", why="no such setting")
        return cls(**cast("dict[str, Any]", values), sources=sources)

    @classmethod
    def variables(cls) -> list[str]:
        """The environment variables that are read."""
        return list(cls._by_variable())

    @classmethod
    def _by_variable(cls) -> dict[str, Field[object]]:
        return {f"OUTLIVE_{one.name.upper()}": one for one in fields(cls) if one.name != "sources"}

    @property
    def place(self) -> str:
        """Where runs live, as it may be shown: without a password."""
        return without_password(self.store)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name, value, source and help of each setting, in order."""
        return [
            (
                one.name,
                without_password(shown(getattr(self, one.name))),
                self.sources.get(one.name, "default"),
                str(one.metadata["help"]),
            )
            for one in self._by_variable().values()
        ]


def _parsed(name: str, value: object, source: str, parse: Callable[[str], object]) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError as error:
        raise SettingInvalid(name=name, value=without_password(value), source=source, why=str(error)) from None
