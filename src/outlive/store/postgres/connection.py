"""Where the database is, its statements, how connections are made, and the one place where errors of the driver become
errors of ours.

Nothing is kept in a connection between transactions: behind a pooler each may go to another one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from outlive.model.errors import (
    CommitUnknown,
    NotSerialisable,
    OutliveError,
    SettingInvalid,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from outlive.store.sql import load

HERE = Path(__file__).parent
OLDEST = 14_00_00

# A statement that met another one crosswise was rolled back, and is sent again.
MOST_ATTEMPTS = 5
CROSSED = ("40001", "40P01")

_BUSY = {*CROSSED, "55P03", "57014"}
_LOST = {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"}
_NOW = "(extract(epoch from {clock}) * 1000)::bigint"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the store is. `name` is what people are shown: the URL without its password.

    `direct` says that no pooler is between: statements are prepared once per connection.
    """

    conninfo: str
    name: str
    schema: str = "outlive"
    direct: bool = False


def place_of(url: str) -> Place:
    """Read `postgresql://user@host/database?schema=outlive&direct=yes`; other options are the driver's.

    Raises SettingInvalid.
    """
    parts = urlsplit(url)
    name = _without_password(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = {key: value for key, value in options if key in ("schema", "direct")}
    others = urlencode([pair for pair in options if pair[0] not in ours], quote_via=quote)
    conninfo = urlunsplit(parts._replace(query=others))
    schema, direct = ours.get("schema", "outlive"), ours.get("direct", "no")
    if parts.scheme not in ("postgresql", "postgres"):
        raise _invalid(name, "say postgresql://user@host/database")
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise _invalid(name, "schema= is a name in lower case, of letters, digits and underscores")
    if direct not in ("yes", "no"):
        raise _invalid(name, "direct= is yes (no pooler between, statements are prepared) or no")
    try:
        conninfo_to_dict(conninfo)
    except psycopg.Error as error:
        raise _invalid(name, str(error).strip()) from None
    return Place(conninfo, name, schema, direct == "yes")


class Statements:
    """The statements by name, for one schema; and those that are built of parts."""

    def __init__(self, schema: str, *, durable: bool = True) -> None:
        durably = "set_config('synchronous_commit', 'on', true)" if durable else "true"
        words = {
            "{schema}": f'"{schema}"',
            "{durably}": f"{durably} as durably",
            "{now}": f"coalesce(%(now)s::bigint, {_NOW.format(clock='statement_timestamp()')})",
            "{moment}": f"coalesce(%(now)s::bigint, {_NOW.format(clock='clock_timestamp()')})",
        }
        self._words = words
        self._text = {name: self.fill(text) for name, text in _texts().items()}
        self._built: dict[tuple[str, ...], bytes] = {}

    def fill(self, text: str) -> str:
        """Replace the words in braces."""
        for word, meaning in self._words.items():
            text = text.replace(word, meaning)
        return text

    def __getitem__(self, name: str) -> bytes:
        return self._text[name].encode()

    def names(self) -> set[str]:
        """All there are."""
        return set(self._text)

    def built(self, first: str, parts: tuple[str, ...], end: str) -> bytes:
        """One statement: `first` begins it, each of `parts` reads what was accepted, `end` says what is returned."""
        shape = (first, *parts, end)
        if shape not in self._built:
            tables = ",\n".join([self._text[first], *(f"{part} as (\n{self._text[part]}\n)" for part in parts)])
            self._built[shape] = f"{tables}\n{self._text[end]}".encode()
        return self._built[shape]

    def claimable(self, *, watched: bool) -> bytes:
        """All ways to be claimable in one statement; the lapsed ones only if some were watched."""
        ways = ["claimable_ready", "claimable_by_timer", "claimable_by_message", "claimable_by_build"]
        if watched:
            ways.append("claimable_by_lapse")
        found = " union all ".join(f"({self._text[way]})" for way in ways)
        return self._text["claimable"].replace("{found}", found).encode()

    def renewal(self) -> bytes:
        """A renewal, with the sign of life and what is unread."""
        end = self._text["renewed"].replace("{unread}", self._text["has_unread"])
        return f"{self._text['renew']},\nsee_worker as (\n{self._text['see_worker']}\n)\n{end}".encode()


@cache
def _texts() -> dict[str, str]:
    return load(HERE / "queries.sql") | load(HERE / "connection.sql")


def arguments(place: Place, *, wait: float) -> dict[str, Any]:
    """How a connection is opened: each statement for itself, broken ones noticed in time."""
    given = conninfo_to_dict(place.conninfo)
    wanted = {
        "application_name": "outlive",
        "connect_timeout": max(2, round(wait)),
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": round(wait * 1000),
    }
    return {
        **{name: value for name, value in wanted.items() if name not in given},
        "client_encoding": "utf8",
        "autocommit": True,
        "prepare_threshold": 5 if place.direct else None,
    }


async def connect(place: Place, *, wait: float) -> psycopg.AsyncConnection[TupleRow]:
    """A connection for a coroutine. Raises StoreUnavailable."""
    try:
        return await psycopg.AsyncConnection.connect(place.conninfo, **arguments(place, wait=wait))
    except psycopg.Error as error:
        raise translated(error, place.name) from error


def connect_blocking(place: Place, *, wait: float) -> psycopg.Connection[TupleRow]:
    """A connection for a thread. Raises StoreUnavailable."""
    try:
        return psycopg.Connection.connect(place.conninfo, **arguments(place, wait=wait))
    except psycopg.Error as error:
        raise translated(error, place.name) from error


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection has gone: what it was doing may have been done."""
    state = error.sqlstate
    if state is not None:
        return state in _LOST or state.startswith("08")
    return isinstance(error, psycopg.OperationalError)


def translated(error: psycopg.Error, store: str, *, wrote: bool = False) -> OutliveError:
    """What an error of the driver means to a caller. `wrote`: the statement may have committed if the connection has
    gone; in every other case nothing is written.
    """
    state, why = error.sqlstate or "", _first_line(error)
    failure: OutliveError
    if is_lost(error):
        failure = CommitUnknown(store=store) if wrote else StoreUnavailable(store=store, why=why)
    elif state in _BUSY:
        failure = StoreBusy(store=store, why=why)
    elif state == "53100":
        failure = StoreFull(store=store)
    elif state[:2] in ("22", "54"):
        failure = NotSerialisable(what="a value", where=store, why=why)
    else:
        failure = StoreUnavailable(store=store, why=why)
    return failure


def unavailable(place: Place, why: str) -> StoreError:
    """The store cannot be used now."""
    return StoreUnavailable(store=place.name, why=why)


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _invalid(name: str, why: str) -> SettingInvalid:
    return SettingInvalid(name="store", value=name, source="its URL", why=why)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    query = [(key, "***" if key == "password" else value) for key, value in parse_qsl(parts.query)]
    shown = parts._replace(netloc=user.partition(":")[0] + at + host, query=urlencode(query, quote_via=quote))
    return urlunsplit(shown)
