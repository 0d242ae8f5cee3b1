"""Where the database is, its statements, how connections are made, and the one place where errors of the driver become
errors of ours.

Nothing is kept in a connection between transactions: behind a pooler each may go to another one.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

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
from outlive.secret.urls import without_password
from outlive.store.sql import load

HERE = Path(__file__).parent
OLDEST = 14_00_00

# A statement that met another one crosswise was rolled back, and is sent again.
MOST_ATTEMPTS = 5
# A server that has taken a statement and is silent for this many times the wait for a lock is given up.
PATIENCE = 1.5
CROSSED = ("40001", "40P01")

# What was prepared fits the schema no more, or was forgotten: nothing was done, and a new connection knows better.
FORGOTTEN = ("0A000", "26000")
FULL = "53100"

_BUSY = {*CROSSED, "55P03", "57014"}
_LOST = {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"}
# What the server says to somebody whom it will never let in; no code comes with it. Anything else may pass.
_LASTING = ("authentication failed", "does not exist", "pg_hba.conf", "not permitted to log in", "no password supplied")
_NOW = "(extract(epoch from {clock}) * 1000)::bigint"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the store is. `name` is what people are shown: the URL without its password.

    `direct` says that no pooler is between: statements are prepared once per connection. `listen` is another URL for
    hints, *no* for none, or empty: this one.
    """

    conninfo: str
    name: str
    schema: str = "outlive"
    direct: bool = False
    listen: str = ""


def place_of(url: str) -> Place:
    """Read `postgresql://user@host/database?schema=outlive&direct=yes&listen_url=…`; other options are the driver's.

    Raises SettingInvalid.
    """
    name = without_password(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _invalid(name, f"it cannot be read: {error}") from None
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = {key: value for key, value in options if key in ("schema", "direct", "listen_url")}
    others = urlencode([pair for pair in options if pair[0] not in ours], quote_via=quote)
    conninfo = urlunsplit(parts._replace(query=others))
    schema, direct, listen = ours.get("schema", "outlive"), ours.get("direct", "no"), ours.get("listen_url", "")
    if parts.scheme not in ("postgresql", "postgres"):
        raise _invalid(name, "say postgresql://user@host/database")
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise _invalid(name, "schema= is a name in lower case, of letters, digits and underscores")
    if direct not in ("yes", "no"):
        raise _invalid(name, "direct= is yes (no pooler between, statements are prepared) or no")
    try:
        conninfo_to_dict(conninfo)
    except psycopg.Error as error:
        # What the driver says may name a part of the password.
        why = str(error).strip() if name == url else "the driver cannot read it; is its password percent-encoded?"
        raise _invalid(name, why) from None
    if listen not in ("", "no"):
        place_of(listen)
    return Place(conninfo, name, schema, direct == "yes", listen)


class Statements:
    """The statements by name, for one schema; and those that are built of parts."""

    def __init__(self, schema: str, *, durable: bool = True, identified: bool = True) -> None:
        self._schema, self._durable = schema, durable
        durably = "set_config('synchronous_commit', 'on', true)" if durable else "true"
        words = {
            "{schema}": f'"{schema}"',
            "{database}": f"({_texts()['database']})" if identified else "''",
            "{durably}": f"{durably} as durably",
            "{now}": f"coalesce(%(now)s::bigint, {_NOW.format(clock='statement_timestamp()')})",
            "{moment}": f"coalesce(%(now)s::bigint, {_NOW.format(clock='clock_timestamp()')})",
        }
        self._words = words
        self._text = {name: self.fill(text) for name, text in _texts().items()}
        self._built: dict[tuple[str, ...], bytes] = {}

    def anonymous(self) -> Statements:
        """The same, for a role that may not read which database it is."""
        return Statements(self._schema, durable=self._durable, identified=False)

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

    def claimable(self, *, quick: bool, watched: bool) -> bytes:
        """All ways to be claimable in one statement; the lapsed ones only if some were watched.

        For a quick claim two of them: behind a pooler, most of the time of a claim of all ways is spent on planning it.
        """
        ways = ["claimable_ready", "claimable_by_message"]
        if not quick:
            ways += ["claimable_by_timer", "claimable_by_build"]
        if watched and not quick:
            ways.append("claimable_by_lapse")
        if (shape := ("claimable", *ways)) not in self._built:
            found = " union all ".join(f"(select *, '{way}' as way from ({self._text[way]}) as {way})" for way in ways)
            whole = self._text["claimable"].replace("{found}", found.replace("{timed}", self._text["timed"]))
            self._built[shape] = whole.encode()
        return self._built[shape]

    def renewal(self) -> bytes:
        """A renewal, with the sign of life and what is unread."""
        end = self._text["renewed"].replace("{unread}", self._text["has_unread"])
        return f"{self._text['renew']},\nsee_worker as (\n{self._text['see_worker']}\n)\n{end}".encode()


@cache
def _texts() -> dict[str, str]:
    return load(HERE / "queries.sql") | load(HERE / "connection.sql")


def arguments(place: Place, *, wait: float, use: str = "") -> dict[str, Any]:
    """How a connection is opened: each statement for itself, broken ones noticed in time. `use` is for who looks."""
    given = conninfo_to_dict(place.conninfo)
    wanted = {
        "application_name": f"outlive {use}".strip(),
        "connect_timeout": max(2, round(wait)),
        "keepalives_idle": 10,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": round(wait * 1000),
    }
    if place.direct:
        # Our statements find rows by keys, whatever the values: to plan them anew costs more than to execute them.
        wanted["options"] = f"-c plan_cache_mode=force_generic_plan {given.pop('options', '') or ''}".strip()
    return {
        **{name: value for name, value in wanted.items() if name not in given},
        "client_encoding": "utf8",
        "autocommit": True,
        "prepare_threshold": 5 if place.direct else None,
    }


async def connect(place: Place, *, wait: float, use: str = "") -> psycopg.AsyncConnection[TupleRow]:
    """A connection for a coroutine. Raises StoreUnavailable."""
    try:
        return await psycopg.AsyncConnection.connect(place.conninfo, **arguments(place, wait=wait, use=use))
    except psycopg.Error as error:
        raise _unreachable(error, place) from error


def connect_blocking(place: Place, *, wait: float, use: str = "") -> psycopg.Connection[TupleRow]:
    """A connection for a thread. Raises StoreUnavailable."""
    try:
        return psycopg.Connection.connect(place.conninfo, **arguments(place, wait=wait, use=use))
    except psycopg.Error as error:
        raise _unreachable(error, place) from error


def has_gone(connection: psycopg.AsyncConnection[TupleRow] | psycopg.Connection[TupleRow]) -> bool:
    """Whether an idle connection has ended, as far as can be seen without asking the server: nothing is sent."""
    if connection.closed:
        return True
    arrived = select.poll()
    arrived.register(connection.fileno(), select.POLLIN)
    try:
        # What the server says unasked is a notice or its farewell; behind a farewell the end is found.
        while arrived.poll(0):
            connection.pgconn.consume_input()
    except psycopg.Error:
        return True
    return False


async def usable(pool: AsyncConnectionPool[psycopg.AsyncConnection[TupleRow]]) -> psycopg.AsyncConnection[TupleRow]:
    """A connection of the pool; one that has gone while it was idle is given back, to be replaced.

    Raises PoolTimeout, and what the driver raises for a server that hangs up as soon as it has answered.
    """
    for _ in range(pool.max_size + 1):
        connection = await pool.getconn()
        if not has_gone(connection):
            return connection
        await pool.putconn(connection)
    raise psycopg.OperationalError("each connection has gone as soon as it was made")


@contextmanager
def limited(connection: psycopg.AsyncConnection[TupleRow], *, wait: float) -> Iterator[None]:
    """Cut the connection when the block has not ended in time: a peer that neither answers nor hangs up is lost."""
    timer = asyncio.get_running_loop().call_later(PATIENCE * wait, _cut_off, connection)
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def limited_in_thread(connection: psycopg.Connection[TupleRow], *, wait: float) -> Iterator[None]:
    """As `limited`, for a thread that waits itself."""
    # Its own way to the socket: the connection's number may be somebody else's by the time that the timer runs.
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        timer = threading.Timer(PATIENCE * wait, _shut, [same])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _cut_off(connection: psycopg.AsyncConnection[TupleRow]) -> None:
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            _shut(same)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


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
        failure = CommitUnknown(store=store) if wrote else StoreUnavailable(store=store, why=why, passing=True)
    elif state in _BUSY:
        failure = StoreBusy(store=store, why=why)
    elif state == FULL:
        failure = StoreFull(store=store)
    elif state[:2] in ("22", "54"):
        failure = NotSerialisable(what="a value", where=store, why=why)
    else:
        failure = StoreUnavailable(store=store, why=why)
    return failure


def no_connection(place: Place, wait: float) -> StoreError:
    """The pool had no connection in time."""
    why = "all are in use, or the server lets nobody in, which the log of psycopg.pool then says"
    return unavailable(place, f"no connection within {wait:g} s: {why}")


def unavailable(place: Place, why: str) -> StoreError:
    """The store cannot be used now."""
    return StoreUnavailable(store=place.name, why=why)


def _unreachable(error: psycopg.Error, place: Place) -> StoreError:
    text = str(error)
    return StoreUnavailable(
        store=place.name, why=_first_line(error), passing=not any(words in text for words in _LASTING)
    )


def _first_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _invalid(name: str, why: str) -> SettingInvalid:
    return SettingInvalid(name="store", value=name, source="its URL", why=why)
