"""The queue, leases and workers. A claim reads what it could have and prepares it; one statement then compares and
sets, and leaves out what somebody else was faster to take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from psycopg.rows import DictRow, dict_row

from outlive.log.entry import Draft, Sealed, seal
from outlive.log.kinds import ClaimedBy, draft
from outlive.model.errors import StoreUnavailable, UnknownRun
from outlive.model.ids import Owner, RunId, Tenant
from outlive.model.run import Authority, Head, History, NewRun, RunRow, Status, refusal_to_fork
from outlive.store import columns
from outlive.store.fairness import Standing, attended, fair
from outlive.store.others import LOOKED_THROUGH, left_to
from outlive.store.port import (
    Append,
    Claim,
    Claimed,
    ClaimWhy,
    Look,
    Overdue,
    Renewed,
    Stalled,
    WorkerRow,
)
from outlive.store.postgres import rows
from outlive.store.postgres.append import blob_parameters
from outlive.store.postgres.base import Base, Connection
from outlive.store.postgres.borrowed import Borrowed
from outlive.store.postgres.connection import Statements
from outlive.store.postgres.transaction import begin
from outlive.store.sql import woven

NOBODY = Head(0, b"")


@dataclass(frozen=True, slots=True)
class _Taking:
    """A claim of one run, ready to be sent."""

    row: RunRow
    why: ClaimWhy
    token: str
    sealed: Sealed


class PostgresWork(Base):
    """The port's `Work`; its contract is there. `_knows` is the newest migration that this release has."""

    _knows: int

    async def start(self, run: NewRun, *, now: int | None = None, within: object = None) -> RunRow:
        known: columns.Parameters = {"tenant": run.tenant, "run": run.id}
        columns.check_text(known, f"run {run.id}")
        if within is not None:
            return await self._start_within(Borrowed(within, self.name), run, known, now)
        [there] = await self._read(self._sql["find_start"], {**known, "now": self._at(now)})
        if there["id"] is not None:
            return columns.run_row(there)
        query, parameters = await self._starting(run, there["moment"])
        added = await self._write(query, parameters)
        if added:
            self._hint()
        # None added: somebody else was faster.
        found = added or await self._read(self._sql["find_run"], {**known})
        if not found:
            raise StoreUnavailable(store=self.name, why=f"run {run.id} has gone as it was started")
        return columns.run_row(found[0])

    async def _start_within(
        self, borrowed: Borrowed, run: NewRun, known: columns.Parameters, now: int | None
    ) -> RunRow:
        """It has no hint: nobody knows whether and when the caller will commit."""
        await self._check_key(borrowed, run.tenant, await self.key(run.tenant))
        [there] = await borrowed.fetch(self._sql["find_start"], {**known, "now": self._at(now)})
        if there["id"] is not None:
            return columns.run_row(there)
        query, parameters = await self._starting(run, there["moment"])
        found = await borrowed.fetch(query, parameters) or await borrowed.fetch(self._sql["find_run"], known)
        if not found:
            raise StoreUnavailable(store=self.name, why=f"run {run.id} has gone as it was started")
        return columns.run_row(found[0])

    async def fork(self, run: NewRun, history: History, first: Draft, *, now: int | None = None) -> RunRow:
        sealed = seal(await self.key(run.tenant), history.end, history.epoch, [first])
        parameters = {**columns.fork_parameters(run, history, sealed.head), "now": self._at(now)}
        columns.check_text(parameters, f"run {run.id}")
        if known := await self._read(self._sql["find_run"], parameters):
            return columns.run_row(known[0])
        parameters["entries"] = columns.to_json([{"place": 1, **rows.entry_parameters(sealed.entries[0])}])
        if added := await self._write(_forking(self._sql), parameters):
            self._hint()
            return columns.run_row(added[0])
        # None added: somebody else was faster, or the parent cannot be forked.
        if known := await self._read(self._sql["find_run"], parameters):
            return columns.run_row(known[0])
        parent = await self._read(self._sql["find_run"], {"tenant": run.tenant, "run": history.parent})
        why = refusal_to_fork(history.parent, columns.run_row(parent[0]) if parent else None)
        if why is None and parent[0]["phase"] == "forgetting":
            raise UnknownRun(run=history.parent)
        raise why or StoreUnavailable(store=self.name, why=f"run {history.parent} changed as it was forked; try again")

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[Claimed]:
        found = await self._candidates(claim, now)
        if not found:
            return []
        taking = [await self._sealed(row, claim) for row in found]
        query = self._sql.built("claim", ("add_entry",), "claimed_rows")
        accepted = {
            row["place"]: row for row in await self._write(query, _claim_parameters(taking, claim, self._at(now)))
        }
        return [_claimed(accepted[place], one) for place, one in enumerate(taking, start=1) if place in accepted]

    async def again(
        self, authority: Authority, *, owner: Owner, lease_ms: int, token: str | None = None, now: int | None = None
    ) -> Claimed | None:
        held: columns.Parameters = {
            "tenant": authority.tenant, "run": authority.run, "epoch": authority.epoch, "token": authority.token,
            "only": None, "unless_live": False,
        }  # fmt: skip
        return await self._control("find_authority", held, ClaimedBy(owner=owner, why="again"), lease_ms, now, token)

    async def seize(
        self,
        tenant: Tenant,
        run: RunId,
        *,
        owner: Owner,
        lease_ms: int,
        only: frozenset[Status] | None = None,
        unless_live: bool = False,
        now: int | None = None,
    ) -> Claimed | None:
        named: columns.Parameters = {
            "tenant": tenant, "run": run, "only": None if only is None else sorted(only), "unless_live": unless_live,
        }  # fmt: skip
        return await self._control("lock_run", named, ClaimedBy(owner=owner, why="control"), lease_ms, now)

    def renew(
        self, owner: Owner, held: Sequence[Authority], lease_ms: int, *, stalled: Stalled | None = None,
        now: int | None = None,
    ) -> Renewed:  # fmt: skip
        asked, sign = self._skew.asked(), columns.sign_parameters(stalled, self._skew.ms)
        renewed = self._connected().renewals.renew(owner, held, lease_ms, sign, self._at(now))
        self._skew.answered(asked, renewed.now)
        return renewed

    async def look(self, claim: Claim, *, sign: bool = False, most: int = 100, now: int | None = None) -> Look:
        parameters = {
            **_asked(claim), "owner": claim.owner, "most": most, "lease_ms": claim.lease_ms, "now": self._at(now),
            **columns.sign_parameters(None, self._skew.ms),
        }  # fmt: skip
        if sign:
            self._refuse_inside()
        asked = self._skew.asked()
        [row] = await self._read(_look_statement(self._sql, sign), parameters)
        self._skew.answered(asked, row["now"])
        attention, unread = attended(row["past_deadline"], row["stranded"], row["sent"], most)
        overdue = tuple(Overdue(*one) for one in row["overdue"])
        return Look(
            row["now"], row["claimable"], row["due_ms"], overdue, attention, row["database"] or "", unread,
            tuple(row["duties"]),
        )  # fmt: skip

    async def announce(self, worker: WorkerRow, *, now: int | None = None) -> None:
        # A worker for which the server has no connection left would claim what it can neither append to nor renew.
        connections = self._connected()
        await connections.committer.ready()
        await asyncio.to_thread(connections.renewals.ready)
        asked, at = self._skew.asked(), self._at(now)
        there = int((await self._read_tuples(self._sql["clock"], {}))[0][0])
        self._skew.answered(asked, there if at is None else at)
        parameters: columns.Parameters = {
            "owner": worker.owner,
            "pid": worker.pid,
            "serves": columns.to_json(dict(worker.serves)),
            "versions": columns.to_json(dict(worker.versions)),
            "knows": self._knows,
            "started_at": worker.started_at,
            "skew_ms": self._skew.ms,
            "now": at,
        }
        await self._write(self._sql["put_worker"], parameters)
        await self._write(self._sql["drop_silent_workers"], parameters)

    async def leave(self, owner: Owner) -> None:
        await self._write(self._sql["drop_worker"], {"owner": owner})

    async def workers(self, *, within_ms: int, now: int | None = None) -> list[WorkerRow]:
        found = await self._read(self._sql["find_workers"], {"within_ms": within_ms, "now": self._at(now)})
        return [columns.worker_row(row) for row in found]

    async def _starting(self, run: NewRun, moment: int) -> tuple[bytes, columns.Parameters]:
        """The statement that adds it, with the entry that says so: it began at `moment`."""
        secret = await self.key(run.tenant)
        first = Append(Authority(run.tenant, run.id, 0, ""), NOBODY, (columns.started(run, moment),))
        sealed = seal(secret, NOBODY, 0, first.drafts)
        entries = [{"place": 1, **rows.entry_parameters(entry)} for entry in sealed.entries]
        blobs = blob_parameters(first, sealed.blobs, [entry.blob for entry in sealed.entries])
        parameters = {**columns.run_parameters(run, sealed.head), "now": moment}
        columns.check_text(parameters, f"run {run.id}")
        parameters["entries"] = columns.to_json(entries)
        if blobs:
            parameters["blobs"] = columns.to_json([{"place": 1, **blob} for blob in blobs])
        parts = ("add_blob", "add_entry") if blobs else ("add_entry",)
        return self._sql.built("add_run", parts, "accepted_rows"), parameters

    async def _candidates(self, claim: Claim, now: int | None) -> list[DictRow]:
        """Runs that may be claimed, best first."""
        watched = sorted(claim.watched)
        parameters: columns.Parameters = {
            **_asked(claim),
            "now": self._at(now),
            "limit": max(claim.limit, LOOKED_THROUGH) if claim.others else claim.limit,
            "watched_tenants": [tenant for tenant, _, _ in watched],
            "watched_runs": [run for _, run, _ in watched],
            "watched_epochs": [epoch for _, _, epoch in watched],
        }
        statement = self._sql.claimable(quick=claim.quick, watched=bool(watched))
        found = await self._read(statement, parameters)
        ways = [
            (row["way"], row)
            for row in found
            if not claim.others or not left_to(claim.others, columns.run_row(row), await self._diverged(row))
        ]
        return fair(ways, _standing, limit=claim.limit, turn=claim.turn)

    async def _diverged(self, row: DictRow) -> set[str]:
        named = {"tenant": row["tenant"], "run": row["id"]}
        return {found["code"] for found in await self._read(self._sql["find_divergences"], named)}

    async def _sealed(self, found: DictRow, claim: Claim) -> _Taking:
        row = columns.run_row(found)
        why: ClaimWhy = "takeover" if row.status == "running" else "start" if row.epoch == 0 else "resume"
        fact = ClaimedBy(owner=claim.owner, why=why, code=claim.serves[row.agent])
        sealed = seal(await self.key(row.tenant), row.head, row.epoch + 1, [draft(fact, at=found["moment"])])
        return _Taking(row, why, self._clock.token(), sealed)

    async def _control(
        self, locking: str, named: columns.Parameters, fact: ClaimedBy, lease_ms: int, now: int | None,
        token: str | None = None,
    ) -> Claimed | None:  # fmt: skip
        self._refuse_inside()
        if not await self._read(self._sql["find_run"], named):
            return None
        tenant, fresh = Tenant(str(named["tenant"])), token or self._clock.token()
        secret, blank = await self.key(tenant), draft(fact, at=0)

        # An owner that appends all the time would win each race between reading and setting, so this one claim locks,
        # seals its single entry, and sets. If the process is stopped in between, the server ends the transaction after
        # a third of the lease.
        async def take(connection: Connection) -> Claimed | None:
            await begin(connection, self._sql, wait=self._wait, idle_ms=max(1, lease_ms // 3))
            locked = connection.cursor(row_factory=dict_row)
            found = await (await locked.execute(self._sql[locking], {**named, "now": self._at(now)})).fetchone()
            if found is None:
                await connection.execute(self._sql["rollback"])
                return None
            row = columns.run_row(found)
            sealed = seal(secret, row.head, row.epoch + 1, [replace(blank, at=found["moment"])])
            parameters = {**named, **_control_parameters(row, sealed, fresh, fact.owner, lease_ms, found["moment"])}
            query = self._sql.built("control", ("add_entry",), "accepted_rows")
            after = await (await locked.execute(query, parameters)).fetchone()
            await connection.execute(self._sql["commit"])
            if after is None:
                return None
            authority = Authority(row.tenant, row.id, row.epoch + 1, fresh)
            return Claimed(authority, columns.run_row(after), _why(fact), found["moment"])

        return await self._on_connection(take, wrote=True)


@lru_cache(maxsize=8)
def _forking(sql: Statements) -> bytes:
    named = {name: sql[name].decode() for name in ("add_fork", "copy_entries", "add_entry")}
    parts = [f"{'accepted' if name == 'add_fork' else name} as (\n{text}\n)" for name, text in named.items()]
    tables = ",\n".join([sql["mark_forked"].decode(), *parts])
    return f"{tables}\n{sql['accepted_rows'].decode()}".encode()


@lru_cache(maxsize=8)
def _look_statement(sql: Statements, sign: bool) -> bytes:
    named = {name: sql[name].decode() for name in sql.names()}
    text = woven(woven(named["look"], named, {"%(limit)s": "1"}), {"timed": "select * from timed"}, {})
    seen = f"seen as (\n{named['see_worker']}\n),\n" if sign else ""
    return f"with {seen}timed as (\n{named['timed']}\n)\n{text}".encode()


def _standing(row: DictRow) -> Standing:
    return Standing(row["tenant"], row["id"], row["priority"], row["due"])


def _asked(claim: Claim) -> columns.Parameters:
    """What a worker serves."""
    return {
        "agents": list(claim.serves),
        "codes": list(claim.serves.values()),
        "versions": columns.to_json(dict(claim.versions)),
        "queues": list(claim.queues),
        "tenants": None if claim.tenants is None else list(claim.tenants),
        "grace_ms": claim.grace_ms,
    }


def _why(fact: ClaimedBy) -> ClaimWhy:
    return "again" if fact.why == "again" else "control"


def _claim_parameters(taking: list[_Taking], claim: Claim, now: int | None) -> columns.Parameters:
    claims: list[columns.Parameters] = []
    entries: list[columns.Parameters] = []
    for place, one in enumerate(taking, start=1):
        row, sealed = one.row, one.sealed
        claims.append(
            {
                "place": place,
                "tenant": row.tenant,
                "run": row.id,
                "epoch": row.epoch,
                "token": one.token,
                "seq": row.head.seq,
                "next_seq": sealed.head.seq,
                "head": sealed.head.digest.hex(),
                "status": row.status,
                "lapse": one.why == "takeover",
            }
        )
        entries.append({"place": place, **rows.entry_parameters(sealed.entries[0])})
    return {
        "claims": columns.to_json(claims),
        "entries": columns.to_json(entries),
        "owner": claim.owner,
        "lease_ms": claim.lease_ms,
        "now": now,
    }


def _claimed(accepted: DictRow, taking: _Taking) -> Claimed:
    row = columns.run_row(accepted)
    authority = Authority(row.tenant, row.id, row.epoch, taking.token)
    return Claimed(authority, row, taking.why, accepted["at"], accepted["database"] or "")


def _control_parameters(
    row: RunRow, sealed: Sealed, token: str, owner: str, lease_ms: int, now: int
) -> columns.Parameters:
    return {
        "tenant": row.tenant,
        "run": row.id,
        "epoch": row.epoch,
        "seq": row.head.seq,
        "next_seq": sealed.head.seq,
        "head": sealed.head.digest,
        "token": token,
        "owner": owner,
        "lease_ms": lease_ms,
        "now": now,
        "entries": columns.to_json([{"place": 1, **rows.entry_parameters(sealed.entries[0])}]),
    }
