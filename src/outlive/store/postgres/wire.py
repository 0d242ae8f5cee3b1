"""A connection for statements that are sent over and over: one at a time, as text, with nothing but a reader of the
socket between the event loop and libpq.

The driver's own coroutines register a reader for each wait and adapt each value anew, which costs an append as much as
a fast disk's flush. Errors are the driver's, so that `connection.translated` stays the one place that names ours.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result
from psycopg.rows import TupleRow

from outlive.store.certain import Certain, outcome
from outlive.store.columns import Parameters
from outlive.store.postgres.connection import Place, connect
from outlive.store.postgres.numbered import Numbered, numbered

_BOOL, _BIGINT = 16, 20
# The longest that the event loop is kept from its turn: a commit of a fast disk on a server that is near.
MOMENT_MS = 2


@dataclass(frozen=True, slots=True)
class _Shape:
    """A statement, and what it is prepared as, if it is."""

    name: bytes
    sent: Numbered


class Wire:
    """Owns an open connection of the driver. `limit` is how many seconds the database may take to answer."""

    def __init__(self, connection: psycopg.AsyncConnection[TupleRow], *, prepared: bool, limit: float) -> None:
        self._connection, self._prepared, self._limit = connection, prepared, limit
        self._libpq = connection.pgconn
        self._libpq.nonblocking = 1
        self._loop = asyncio.get_running_loop()
        self._shapes: dict[bytes, _Shape] = {}
        self._answer: Certain[list[pq.abc.PGresult]] | None = None
        self._results: list[pq.abc.PGresult] = []
        self._socket = self._libpq.socket
        self._loop.add_reader(self._socket, self._readable)
        self._moment = select.poll()
        self._moment.register(self._socket, select.POLLIN)

    @property
    def closed(self) -> bool:
        """Whether it can be used no more."""
        return self._connection.closed

    async def execute(self, statement: bytes, parameters: Parameters, *, here: bool = False) -> list[TupleRow]:
        """One statement that commits by itself, with the driver's named parameters; its rows, if it has any.

        A cancellation of the caller is held back until the database has answered. With `here` the answer is waited for
        without giving the loop its turn, for a moment at most.
        Raises psycopg.Error; an OperationalError without a state is a connection that has gone, or did not answer.
        """
        shape = self._shapes.get(statement) or await self._shape(statement)
        values = [_encoded(parameters[name]) for name in shape.sent.parameters]
        if self._prepared:
            [result] = await self._ask(lambda: self._libpq.send_query_prepared(shape.name, values), here)
        else:
            [result] = await self._ask(lambda: self._libpq.send_query_params(shape.sent.text, values), here)
        return _rows(result)

    async def close(self) -> None:
        """Disconnect; a statement on its way may still be done."""
        self._let_go()
        await self._connection.close()

    async def _shape(self, statement: bytes) -> _Shape:
        shape = _Shape(b"outlive_%d" % len(self._shapes), numbered(statement))
        if self._prepared:
            [result] = await self._ask(lambda: self._libpq.send_prepare(shape.name, shape.sent.text))
            _rows(result)
        self._shapes[statement] = shape
        return shape

    async def _ask(self, send: Callable[[], None], here: bool = False) -> list[pq.abc.PGresult]:
        answer: Certain[list[pq.abc.PGresult]] = Certain()
        self._answer, self._results = answer, []
        try:
            send()
            self._flush()
            if here and self._moment.poll(MOMENT_MS):
                self._readable()
            if answer.done():
                return answer.result()
            limit = self._loop.call_later(self._limit, self._fail, f"no answer within {self._limit:g} s")
            try:
                return await outcome(answer)
            finally:
                limit.cancel()
        finally:
            self._answer = None

    def _flush(self) -> None:
        # What does not fit into the socket's buffer goes out as it empties; the reader goes on meanwhile.
        if self._libpq.flush():
            self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        try:
            if not self._libpq.flush():
                self._loop.remove_writer(self._socket)
        except psycopg.Error as error:
            self._fail(str(error))

    def _readable(self) -> None:
        try:
            self._libpq.consume_input()
            while not self._libpq.is_busy():
                result = self._libpq.get_result()
                if result is None:
                    break
                self._results.append(result)
            else:
                return
        except psycopg.Error as error:
            self._fail(str(error))
            return
        if self._libpq.status == pq.ConnStatus.BAD:
            self._fail("the connection has gone")
        elif self._results and self._answer is not None and not self._answer.done():
            self._answer.set_result(self._results)

    def _fail(self, why: str) -> None:
        """The connection cannot be used any more, and what it was doing may have been done."""
        self._let_go()
        self._libpq.finish()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(psycopg.OperationalError(why))

    def _let_go(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)


async def open_wire(place: Place, *, wait: float) -> Wire:
    """Connect. Statements are prepared where no pooler is between. Raises StoreUnavailable."""
    return Wire(await connect(place, wait=wait, use="appends"), prepared=place.direct, limit=wait)


def _encoded(value: object) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case bool():
            return b"t" if value else b"f"
        case int():
            return b"%d" % value
        case _:
            raise TypeError(f"a parameter of type {type(value).__name__}")


def _rows(result: pq.abc.PGresult) -> list[TupleRow]:
    if result.status == pq.ExecStatus.COMMAND_OK:
        return []
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise error_from_result(result)
    types = [result.ftype(column) for column in range(result.nfields)]
    return [
        tuple(_decoded(result.get_value(row, column), kind) for column, kind in enumerate(types))
        for row in range(result.ntuples)
    ]


def _decoded(value: bytes | None, kind: int) -> object:
    if value is None:
        return None
    if kind == _BIGINT:
        return int(value)
    return value == b"t" if kind == _BOOL else value.decode()
