"""Settings: one frozen record. An argument beats an option, an option beats `OUTLIVE_*`, that beats the default."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, cast

from outlive.model.errors import SettingInvalid

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> timedelta:
    """`500ms`, `30s`, `10m`, `2h`, `3d`. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text.strip())
    if not found:
        raise ValueError("a duration is a number with a unit: 500ms, 30s, 10m, 2h, 3d")
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


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
    if int(text) < 1:
        raise ValueError("at least 1")
    return int(text)


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

    store: str = field(default="sqlite:///outlive.db", metadata=_say("where runs live: sqlite:///path"))
    app: str = field(default="", metadata=_say("the application, as module:attribute"))
    tenant: str = field(default="default", metadata=_say("whose runs"))
    lease: timedelta = field(
        default=timedelta(seconds=30), metadata=_say("how long a worker owns a run without renewing", _lease)
    )
    concurrency: int = field(default=100, metadata=_say("runs that one worker drives at once", _count))
    drain: timedelta = field(
        default=timedelta(seconds=30), metadata=_say("how long SIGTERM waits for calls in flight", duration)
    )
    stall_limit: timedelta = field(
        default=timedelta(minutes=5), metadata=_say("how long a stuck event loop keeps its runs", duration)
    )
    max_lapses: int = field(
        default=10, metadata=_say("leases in a row that may lapse before a run counts as poison", _count)
    )
    secrets: str = field(default="", metadata=_say("directory with one file per secret"))
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
        for one in fields(cls):
            if one.name == "sources":
                continue
            variable = f"OUTLIVE_{one.name.upper()}"
            if given.get(one.name) is not None:
                source, value = "option", given[one.name]
            elif variable in environ:
                source, value = variable, environ[variable]
            else:
                sources[one.name] = "default"
                continue
            sources[one.name] = source
            values[one.name] = _parsed(one.name, value, source, one.metadata["parse"])
        unknown = sorted(set(given) - {one.name for one in fields(cls)})
        if unknown:
            raise SettingInvalid(name=unknown[0], value=str(given[unknown[0]]), source="option", why="no such setting")
        return cls(**cast("dict[str, Any]", values), sources=sources)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name, value, source and help of each setting, in order."""
        return [
            (one.name, shown(getattr(self, one.name)), self.sources.get(one.name, "default"), str(one.metadata["help"]))
            for one in fields(self)
            if one.name != "sources"
        ]


def _parsed(name: str, value: object, source: str, parse: Callable[[str], object]) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError as error:
        raise SettingInvalid(name=name, value=value, source=source, why=str(error)) from None
