"""The store as one object: connects, migrates, checks durability, and disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from psycopg_pool import AsyncConnectionPool

from outlive.model.clock import Clock
from outlive.store.hints import never
from outlive.store.postgres.append import Committer
from outlive.store.postgres.approvals import PostgresApprovals
from outlive.store.postgres.base import Connection, Connections
from outlive.store.postgres.bundle import PostgresBundles
from outlive.store.postgres.connection import Place, arguments, connect_blocking, place_of
from outlive.store.postgres.graphs import PostgresGraphs
from outlive.store.postgres.hints import Listener, Sender, notifying
from outlive.store.postgres.identity import identified
from outlive.store.postgres.items import PostgresItems
from outlive.store.postgres.keeping import PostgresKeeping
from outlive.store.postgres.keyed import PostgresKeys
from outlive.store.postgres.log import PostgresLog
from outlive.store.postgres.records import PostgresRecords
from outlive.store.postgres.renewal import Renewals
from outlive.store.postgres.streaming import PostgresStreaming
from outlive.store.postgres.survey import PostgresSurvey
from outlive.store.postgres.telling import PostgresTelling
from outlive.store.postgres.transcripts import PostgresTranscripts
from outlive.store.postgres.upkeep import PostgresUpkeep
from outlive.store.postgres.wire import open_wire
from outlive.store.postgres.work import PostgresWork
from outlive.store.upkeep import Migration, newest

# How often a statement is executed before the driver prepares it by itself.
_ONLY_ASKED = 2**31


class PostgresStore(
    PostgresLog,
    PostgresWork,
    PostgresRecords,
    PostgresApprovals,
    PostgresKeys,
    PostgresSurvey,
    PostgresKeeping,
    PostgresBundles,
    PostgresTelling,
    PostgresStreaming,
    PostgresGraphs,
    PostgresItems,
    PostgresTranscripts,
):
    """A schema of a PostgreSQL database; see the port for its contract. It belongs to the event loop that opens it.

    `wait` is how many seconds a call waits for a connection or a lock. `most` is how many connections the pool may
    have; two more are for appends and renewals, and one for a worker that listens. `known` are the migrations to go by,
    this release's if not given. With `existing` an open makes nothing and migrates nothing. `listen_url` comes before
    that of the place, see there.
    """

    def __init__(
        self,
        place: Place,
        *,
        clock: Clock,
        unsafe_durability: bool = False,
        wait: float = 10.0,
        most: int = 6,
        known: Sequence[Migration] | None = None,
        existing: bool = False,
        listen_url: str = "",
    ) -> None:
        super().__init__(place, clock=clock, unsafe_durability=unsafe_durability, wait=wait)
        self._most, self._existing = most, existing
        listen = listen_url or place.listen
        self._listening = None if listen == "no" else place_of(listen) if listen else place
        self._upkeep = PostgresUpkeep(place, unsafe_durability=unsafe_durability, wait=wait, known=known)
        self._knows = newest(self._upkeep.known)

    async def open(self) -> None:
        """See the port. The schema is made if it is missing; tables of somebody else in it are NotAStore."""
        if self._connections is not None:
            return
        if self._existing:
            await self._upkeep.expect()
        else:
            await self._upkeep.migrate()
        direct = self._place.direct
        pool = AsyncConnectionPool[Connection](
            self._place.conninfo,
            # Only statements of ours are prepared, which are asked for one by one: what a user's SQL means may change.
            kwargs={**arguments(self._place, wait=self._wait), "prepare_threshold": _ONLY_ASKED if direct else None},
            min_size=1,
            max_size=self._most,
            timeout=self._wait,
            # Between its attempts to reconnect the pool waits ever longer; a call that needs a connection begins anew.
            reconnect_timeout=self._wait,
            # What it has grown by is somebody else's soon: a server has only so many connections.
            max_idle=60.0,
            open=False,
            name="outlive",
        )
        await pool.open()
        self._sql = await identified(pool, self._sql, store=self.name)
        notify = notifying(pool, self._sql["notify"], self._place)
        self._connections = Connections(
            pool,
            Committer(
                partial(open_wire, self._place, wait=self._wait), self._sql, self._tasks, self._clock, store=self.name
            ),
            Renewals(
                partial(connect_blocking, self._place, wait=self._wait, use="renewals"),
                self._sql,
                store=self.name,
                wait=self._wait,
            ),
            notify,
            Sender(notify, self._tasks),
        )

    async def close(self) -> None:
        """See the port. A store that is not open stays so."""
        if self._connections is None:
            return
        connections, self._connections = self._connections, None
        connections.sender.close()
        await connections.committer.close()
        await asyncio.to_thread(connections.renewals.close)
        await connections.pool.close()

    def hints(self) -> AsyncGenerator[bool]:
        """See the port. A connection of its own for each iterator, which is closed with it."""
        notify = self._connected().notify
        if self._listening is None:
            return never()
        return Listener(self._listening, self._sql["listen"], notify, self._clock, wait=self._wait).hints()


async def open_postgres(
    url: str, *, clock: Clock, unsafe_durability: bool = False, existing: bool = False, listen_url: str = ""
) -> PostgresStore:
    """Open `postgresql://user@host/database`; options are those of `place_of`, and the others as in PostgresStore.

    Raises SettingInvalid for another URL, and what `open` raises.
    """
    store = PostgresStore(
        place_of(url), clock=clock, unsafe_durability=unsafe_durability, existing=existing, listen_url=listen_url
    )
    await store.open()
    return store
