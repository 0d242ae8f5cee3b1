"""Which database answers, and on which of its timelines: what tells a failover or a restored backup from a restart.

Each renewal and each claim says it, because behind a pooler every statement may reach another server. A promoted
replica has the identifier of its primary and a new timeline; the control file has the new one only from its next
checkpoint on, so it is read from the name of the file that is written to.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from outlive.store.postgres.connection import Statements

log = logging.getLogger("outlive.store")


async def identified(
    pool: AsyncConnectionPool[psycopg.AsyncConnection[TupleRow]], sql: Statements, *, store: str
) -> Statements:
    """The statements, without the database's identity where the role may not read it or the server has none."""
    try:
        async with pool.connection() as connection:
            await connection.execute(sql["database"])
    except psycopg.Error as error:
        if not (error.sqlstate or "").startswith(("42", "0A")):
            return sql  # it cannot be reached now: that says nothing
        log.warning("%s: a failover that loses commits is seen only by runs that are being driven: %s", store, error)
        return sql.anonymous()
    return sql


def unsafe_failover(settings: Mapping[str, str], replicas: int) -> list[str]:
    """What a failover may lose of acknowledged commits; empty is good, or there is nothing to fail over to."""
    if replicas and not settings.get("synchronous_standby_names"):
        return [f"synchronous_standby_names is empty: a failover to the {replicas} that follow may lose commits"]
    return []
