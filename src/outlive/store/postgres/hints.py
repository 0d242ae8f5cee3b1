"""Waking other processes by NOTIFY: hints that cost no append anything, and that nobody has to rely on.

NOTIFY takes a lock of the whole database at its commit, so it is never in the transaction that it tells of: a sender
follows the commits with at most one notification per few milliseconds. A listener has a connection of its own. That it
hears anything is proven, not believed: a pooler in transaction mode accepts LISTEN and delivers nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeAlias

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from outlive.model.clock import Clock
from outlive.model.errors import StoreError
from outlive.store.postgres.connection import Place, connect, translated
from outlive.store.postgres.tasks import Tasks

log = logging.getLogger("outlive.store")

# Between two notifications of one process.
SPACING_S = 0.005
# How long the listener waits for its own notification, and the notifications that are pending for a store that closes.
PATIENCE_S = 5.0
RETRY_LEAST_S, RETRY_MOST_S = 0.5, 60.0

Notify: TypeAlias = "Callable[[str], Awaitable[None]]"


class Sender:
    """Tells the others that something may have become claimable: at once, then once for all that came meanwhile."""

    def __init__(self, notify: Notify, tasks: Tasks) -> None:
        self._notify, self._tasks = notify, tasks
        self._pending = self._busy = False
        self._closing = asyncio.Event()

    def send(self) -> None:
        """Give a hint; returns at once. One that cannot be sent is forgotten: others look by themselves."""
        self._pending = True
        if not self._busy:
            self._busy = True
            self._tasks.start(self._run())

    def close(self) -> None:
        """Send what is pending without further delay; its task is one of those that the store waits for."""
        self._closing.set()

    async def _run(self) -> None:
        try:
            while self._pending:
                self._pending = False
                await self._send()
                await self._spacing()
        finally:
            self._busy = False

    async def _send(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._notify("")
        except (StoreError, TimeoutError) as error:
            log.debug("a hint was not sent: %s", error)

    async def _spacing(self) -> None:
        try:
            async with asyncio.timeout(SPACING_S):
                await self._closing.wait()
        except TimeoutError:
            return


class Listener:
    """Hears the notifications of one channel over a connection of its own, and makes a new one when that has gone.

    `notify` sends a notification the way in which others do; `statement` listens to the same channel.
    """

    def __init__(self, place: Place, statement: bytes, notify: Notify, clock: Clock, *, wait: float) -> None:
        self._place, self._statement, self._notify, self._clock, self._wait = place, statement, notify, clock, wait
        self._heard = True

    async def hints(self) -> AsyncGenerator[bool]:
        """As the port's `hints`. A new connection counts as a hint: nobody knows what the old one has missed."""
        pause = RETRY_LEAST_S
        while True:
            try:
                connection = await connect(self._place, wait=self._wait, use="hints")
                try:
                    arrivals = connection.notifies()
                    await connection.execute(self._statement)
                    await self._prove(arrivals)
                    pause = RETRY_LEAST_S
                    self._say(heard=True)
                    yield True
                    async for _ in arrivals:
                        yield True
                finally:
                    await connection.close()
            except psycopg.Error as error:
                self._say(heard=False, why=str(translated(error, self._place.name)))
            except (StoreError, _Unheard) as error:
                self._say(heard=False, why=str(error))
            yield False
            await self._clock.sleep(pause * (0.5 + self._clock.random()))
            pause = min(pause * 2, RETRY_MOST_S)

    async def _prove(self, arrivals: AsyncGenerator[psycopg.Notify]) -> None:
        """Return once our own notification has been heard. Raises StoreError, psycopg.Error or _Unheard."""
        token = self._clock.token()
        await self._notify(token)
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for one in arrivals:
                    if one.payload == token:
                        return
        except TimeoutError:
            pass
        raise _Unheard

    def _say(self, *, heard: bool, why: str = "") -> None:
        if self._heard and not heard:
            log.warning("%s: no hints arrive, so that workers here look once a second: %s", self._place.name, why)
        elif heard and not self._heard:
            log.info("%s: hints arrive again", self._place.name)
        self._heard = heard


class _Unheard(Exception):
    """Our own notification did not arrive."""

    def __str__(self) -> str:
        return (
            f"a notification of its own was not heard within {PATIENCE_S:g} s, as behind a pooler in transaction mode; "
            "set listen_url to a direct connection, or to no"
        )


def notifying(pool: AsyncConnectionPool[psycopg.AsyncConnection[TupleRow]], statement: bytes, place: Place) -> Notify:
    """What sends a notification with this payload over a connection of the pool. It raises StoreError."""

    async def notify(payload: str) -> None:
        try:
            async with pool.connection() as connection:
                await connection.execute(statement, {"channel": place.schema, "payload": payload})
        except psycopg.Error as error:
            raise translated(error, place.name) from error

    return notify
