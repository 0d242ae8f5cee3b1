"""The queue, leases and workers. A claim reads what it could have and prepares it; inside the transaction it only
compares and sets, and leaves out what somebody else was faster to take.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from outlive.log.entry import Draft, Sealed, seal
from outlive.log.kinds import ClaimedBy, draft
from outlive.model.errors import StoreUnavailable
from outlive.model.ids import Owner, RunId, Tenant
from outlive.model.run import Authority, History, NewRun, RunRow, Status
from outlive.store import columns
from outlive.store.fairness import Standing, attended, fair
from outlive.store.hints import never
from outlive.store.others import LOOKED_THROUGH, left_to
from outlive.store.port import (
    Claim,
    Claimed,
    ClaimWhy,
    Look,
    Overdue,
    Renewed,
    Stalled,
    WorkerRow,
)
from outlive.store.sqlite import rows
from outlive.store.sqlite.base import Base, clock
from outlive.store.sqlite.borrowed import borrowed
from outlive.store.sqlite.connection import QUERIES, SETUP, SIGN_AND_LOOK
from outlive.store.sqlite.records import find_run
from outlive.store.sqlite.starting import add, add_fork, prepare, prepare_fork
from outlive.store.sqlite.thread import Blocking


@dataclass(frozen=True, slots=True)
class _Candidate:
    row: RunRow
    why: ClaimWhy
    due: int


@dataclass(frozen=True, slots=True)
class _Taking:
    """A claim of one run, ready to be executed."""

    candidate: _Candidate
    token: str
    sealed: Sealed


@dataclass(frozen=True, slots=True)
class _Control:
    """A claim that leaves the status as it is; with `authority`, only while that is still the run's."""

    tenant: Tenant
    run: RunId
    owner: Owner
    lease_ms: int
    why: ClaimWhy
    authority: Authority | None = None
    token: str | None = None
    only: frozenset[Status] | None = None
    unless_live: bool = False


class SQLiteWork(Base):
    """The port's `Work`; its contract is there."""

    async def start(self, run: NewRun, *, now: int | None = None, within: object = None) -> RunRow:
        if within is not None:
            return self._start_within(within, run, now)
        existing, at = await self._read(
            lambda database: (find_run(database, run.tenant, run.id), self._at(now, clock(database)))
        )
        if existing is not None:
            return existing
        starting = prepare(await self.key(run.tenant), run, at)
        row = await self._write(lambda database, clock: add(database, starting, self._at(now, clock)))
        if row is None:
            raise StoreUnavailable(store=self.name, why=f"run {run.id} has gone as it was started")
        self._hint()
        return row

    def _start_within(self, connection: object, run: NewRun, now: int | None) -> RunRow:
        """Where it is called, since the connection belongs to the caller's thread; it has no hint: it may never be."""
        with borrowed(connection, self._path, self.name) as database:
            if (existing := find_run(database, run.tenant, run.id)) is not None:
                return existing
            at = self._at(now, clock(database))
            row = add(database, prepare(self._key_within(database, run.tenant), run, at), at)
        if row is None:
            raise StoreUnavailable(store=self.name, why=f"run {run.id} has gone as it was started")
        return row

    async def fork(self, run: NewRun, history: History, first: Draft, *, now: int | None = None) -> RunRow:
        forking = prepare_fork(await self.key(run.tenant), run, history, first)
        row = await self._write(lambda database, clock: add_fork(database, forking, self._at(now, clock)))
        if row is None:
            raise StoreUnavailable(store=self.name, why=f"run {run.id} has gone as it was forked")
        self._hint()
        return row

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[Claimed]:
        candidates, at = await self._read(lambda database: self._candidates(database, claim, now))
        if not candidates:
            return []
        taking = [await self._sealed(candidate, claim, at) for candidate in candidates]

        def take(database: sqlite3.Connection, clock: int) -> list[Claimed]:
            now_ = self._at(now, clock)
            taken = ((one, _take(database, one, claim, now_)) for one in taking)
            return [_claimed(one, claim, now_, lapses) for one, lapses in taken if lapses is not None]

        return await self._write(take)

    async def again(
        self, authority: Authority, *, owner: Owner, lease_ms: int, token: str | None = None, now: int | None = None
    ) -> Claimed | None:
        control = _Control(authority.tenant, authority.run, owner, lease_ms, "again", authority, token)
        return await self._control(control, now)

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
        control = _Control(tenant, run, owner, lease_ms, "control", only=only, unless_live=unless_live)
        return await self._control(control, now)

    def renew(
        self, owner: Owner, held: Sequence[Authority], lease_ms: int, *, stalled: Stalled | None = None,
        now: int | None = None,
    ) -> Renewed:  # fmt: skip
        named = [
            (one, {"tenant": one.tenant, "run": one.run, "epoch": one.epoch, "token": one.token, "lease_ms": lease_ms})
            for one in sorted(held, key=lambda one: (one.tenant, one.run))
        ]

        asked, sign = self._skew.asked(), columns.sign_parameters(stalled, self._skew.ms)

        def extend(database: sqlite3.Connection, clock: int) -> Renewed:
            now_ = self._at(now, clock)
            seen = {"owner": owner, "now": now_, **sign}
            database.execute(QUERIES["see_worker"], seen)
            kept, unread = set[Authority](), set[tuple[Tenant, RunId]]()
            for authority, parameters in named:
                if database.execute(QUERIES["renew"], {**parameters, "now": now_}).rowcount == 1:
                    kept.add(authority)
                    if database.execute(QUERIES["has_unread"], parameters).fetchone()[0]:
                        unread.add((authority.tenant, authority.run))
            return Renewed(now_, frozenset(kept), frozenset(unread))

        request = Blocking(extend)
        self._writer().put(request, urgent=True)
        renewed = request.result()
        self._skew.answered(asked, renewed.now)
        return renewed

    async def look(self, claim: Claim, *, sign: bool = False, most: int = 100, now: int | None = None) -> Look:
        parameters = {
            **_asked(claim), "owner": claim.owner, "most": most, "lease_ms": claim.lease_ms,
            "now": self._clock.now() if now is None else now,
        }  # fmt: skip
        found, asked = list[sqlite3.Row](), self._skew.asked()
        if sign:
            ours = {**parameters, **columns.sign_parameters(None, self._skew.ms)}
            found = await self._write_alone(lambda database: database.execute(SIGN_AND_LOOK, ours).fetchall())
        # None was signed: who was silent for a day has no row any more.
        if not found:
            found = await self._read(lambda database: database.execute(QUERIES["look"], parameters).fetchall())
        look = _look(found[0], most)
        self._skew.answered(asked, look.now)
        return look

    def hints(self) -> AsyncGenerator[bool]:
        self._connected()
        return never() if self._hints is None else self._hints.changes()

    async def announce(self, worker: WorkerRow, *, now: int | None = None) -> None:
        asked = self._skew.asked()
        self._skew.answered(asked, await self._read(lambda database: self._at(now, clock(database))))
        parameters: columns.Parameters = {
            "owner": worker.owner,
            "pid": worker.pid,
            "serves": columns.to_json(worker.serves),
            "versions": columns.to_json(dict(worker.versions)),
            "started_at": worker.started_at,
            "skew_ms": self._skew.ms,
        }

        def put(database: sqlite3.Connection, clock: int) -> None:
            now_ = self._at(now, clock)
            database.execute(QUERIES["put_worker"], {**parameters, "now": now_})
            database.execute(QUERIES["drop_silent_workers"], {"now": now_})

        await self._write(put)

    async def leave(self, owner: Owner) -> None:
        def drop(database: sqlite3.Connection, _: int) -> None:
            database.execute(QUERIES["drop_worker"], {"owner": owner})

        await self._write(drop)

    async def workers(self, *, within_ms: int, now: int | None = None) -> list[WorkerRow]:
        def find(database: sqlite3.Connection) -> list[WorkerRow]:
            since = self._at(now, clock(database)) - within_ms
            return [columns.worker_row(row) for row in database.execute(QUERIES["find_workers"], {"since": since})]

        return await self._read(find)

    def _candidates(self, database: sqlite3.Connection, claim: Claim, now: int | None) -> tuple[list[_Candidate], int]:
        at = self._at(now, clock(database))
        database.execute(SETUP["begin_read"])
        try:
            return candidates(database, claim, at), at
        finally:
            database.execute(SETUP["commit"])

    async def _sealed(self, candidate: _Candidate, claim: Claim, at: int) -> _Taking:
        row = candidate.row
        fact = ClaimedBy(owner=claim.owner, why=candidate.why, code=claim.serves[row.agent])
        sealed = seal(await self.key(row.tenant), row.head, row.epoch + 1, [draft(fact, at=at)])
        return _Taking(candidate, self._clock.token(), sealed)

    async def _control(self, control: _Control, now: int | None) -> Claimed | None:
        tenant, run = control.tenant, control.run
        if await self._read(lambda database: find_run(database, tenant, run)) is None:
            return None
        secret, token = await self.key(tenant), control.token or self._clock.token()
        blank = draft(ClaimedBy(owner=control.owner, why=control.why), at=0)

        # An owner that appends all the time would win each race between reading and setting, so this one claim reads
        # and seals its single entry inside the transaction.
        def take(database: sqlite3.Connection, clock: int) -> Claimed | None:
            now_ = self._at(now, clock)
            authority = control.authority
            row = find_run(database, tenant, run) if authority is None else _held(database, authority)
            if row is None:
                return None
            sealed = seal(secret, row.head, row.epoch + 1, [replace(blank, at=now_)])
            parameters = {
                **_claim_parameters(row, sealed, token, control.owner, control.lease_ms),
                "now": now_,
                "only": None if control.only is None else columns.to_json(sorted(control.only)),
                "unless_live": control.unless_live,
            }
            if database.execute(QUERIES["control"], parameters).rowcount != 1:
                return None
            database.execute(QUERIES["add_entry"], rows.entry_parameters(tenant, run, sealed.entries[0]))
            after = find_run(database, tenant, run)
            if after is None:
                return None
            return Claimed(Authority(tenant, run, after.epoch, token), after, control.why, now_)

        return await self._write(take)


def candidates(database: sqlite3.Connection, claim: Claim, now: int) -> list[_Candidate]:
    """Runs that may be claimed, best first: the statements for each way to be claimable, merged."""
    common: columns.Parameters = {
        **_asked(claim), "now": now, "limit": max(claim.limit, LOOKED_THROUGH) if claim.others else claim.limit,
        "watched": columns.to_json(sorted(claim.watched)),
    }  # fmt: skip
    found: list[tuple[str, sqlite3.Row]] = []

    def find(way: str, **asked: str | int) -> None:
        found.extend((way, row) for row in database.execute(QUERIES[way], {**common, **asked}))

    for agent, code in claim.serves.items():
        for queue in claim.queues:
            find("claimable_ready", agent=agent, code=code, queue=queue)
        if not claim.quick:
            find("claimable_by_build", agent=agent, code=code)
    if not claim.quick:
        for queue, agent, code, priority in database.execute(QUERIES["timed"], common).fetchall():
            find("claimable_by_timer", agent=agent, code=code, queue=queue, priority=priority)
    find("claimable_by_message")
    if claim.watched and not claim.quick:
        find("claimable_by_lapse")
    if claim.others:
        found = [
            (way, row)
            for way, row in found
            if not left_to(claim.others, columns.run_row(row), _diverged(database, row))
        ]
    best = fair(found, _standing, limit=claim.limit, turn=claim.turn)
    return [_Candidate(columns.run_row(row), _why(row), row["due"]) for row in best]


def _diverged(database: sqlite3.Connection, row: sqlite3.Row) -> set[str]:
    found = database.execute(QUERIES["find_divergences"], {"tenant": row["tenant"], "run": row["id"]})
    return {code for code, _ in found}


def _standing(row: sqlite3.Row) -> Standing:
    return Standing(row["tenant"], row["id"], row["priority"], row["due"])


def _asked(claim: Claim) -> columns.Parameters:
    """What a worker serves."""
    return {
        "queues": columns.to_json(list(claim.queues)),
        "tenants": None if claim.tenants is None else columns.to_json(list(claim.tenants)),
        "serves": columns.to_json(claim.serves),
        "versions": columns.to_json(dict(claim.versions)),
        "grace_ms": claim.grace_ms,
    }


def _look(row: sqlite3.Row, most: int) -> Look:
    past, stranded, sent = (json.loads(row[name]) for name in ("past_deadline", "stranded", "sent"))
    attention, unread = attended(past, stranded, sent, most)
    overdue = tuple(Overdue(*one) for one in json.loads(row["overdue"]))
    return Look(
        row["now"], bool(row["claimable"]), row["due_ms"], overdue, attention, unread=unread,
        duties=tuple(json.loads(row["duties"])),
    )  # fmt: skip


def _why(row: sqlite3.Row) -> ClaimWhy:
    if row["status"] == "running":
        return "takeover"
    return "start" if row["epoch"] == 0 else "resume"


def _take(database: sqlite3.Connection, taking: _Taking, claim: Claim, now: int) -> int | None:
    """The lapses that are counted now; None where somebody else was faster."""
    row, sealed = taking.candidate.row, taking.sealed
    parameters: columns.Parameters = {
        **_claim_parameters(row, sealed, taking.token, claim.owner, claim.lease_ms),
        "now": now,
        "status": row.status,
        "forked": row.forked,
        "lapse": taking.candidate.why == "takeover",
    }
    counted = database.execute(QUERIES["claim"], parameters).fetchall()
    if not counted:
        return None
    database.execute(QUERIES["add_entry"], rows.entry_parameters(row.tenant, row.id, sealed.entries[0]))
    return int(counted[0][0])


def _claimed(taking: _Taking, claim: Claim, now: int, lapses: int) -> Claimed:
    before = taking.candidate.row
    row = replace(
        before,
        status="running",
        epoch=before.epoch + 1,
        head=taking.sealed.head,
        owner=claim.owner,
        lease_ms=claim.lease_ms,
        expires_at=now + claim.lease_ms,
        updated_at=now,
        wake_at=None,
        reason="",
        detail="",
        lapses=lapses,
    )
    return Claimed(Authority(row.tenant, row.id, row.epoch, taking.token), row, taking.candidate.why, now)


def _claim_parameters(row: RunRow, sealed: Sealed, token: str, owner: Owner, lease_ms: int) -> columns.Parameters:
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
    }


def _held(database: sqlite3.Connection, authority: Authority) -> RunRow | None:
    parameters = {
        "tenant": authority.tenant,
        "run": authority.run,
        "epoch": authority.epoch,
        "token": authority.token,
    }
    row = database.execute(QUERIES["find_authority"], parameters).fetchone()
    return None if row is None else columns.run_row(row)
