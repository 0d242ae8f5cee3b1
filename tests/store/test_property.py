"""Random commands against the store and its model: they must agree, and every run must be explained, at every point."""

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import hypothesis.strategies as st
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from psycopg.rows import TupleRow

from outlive.model.errors import LeaseLost, WrongState
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import ENDED, Authority, Head, Status, may_follow
from outlive.model.run import STATUSES as ALL
from outlive.store.port import Append, Change, Claim, Divergence, Store
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import Place, place_of
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock
from outlive.testing.store_model import ModelRun, explain
from outlive.testing.store_scene import Hold, Scene, event, held, new_run

T = TypeVar("T")

LEASE = 3_000
RUNS = st.sampled_from(["r1", "r2", "r3"])
OWNERS = st.sampled_from([Owner("anna"), Owner("boris")])
BUILDS = st.sampled_from(["b1", "b2"])
STATUSES: list[Status] = ["ready", "waiting", "blocked", "succeeded", "failed", "cancelled", "expired"]
REASONS = {"blocked": ["poison", "diverged"]}


class Machine(RuleBasedStateMachine):
    """Subclasses open a database that nobody has used."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.scene = self.do(Scene.set(self.open_store))
        self.model: dict[str, ModelRun] = {}
        self.holds: list[Hold] = []

    async def open_store(self, clock: ManualClock) -> Store:
        raise NotImplementedError

    def do(self, call: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        self.do(self.scene.close())
        self.loop.close()

    @property
    def now(self) -> int:
        return self.scene.now

    @rule(run=RUNS, deadline_ms=st.none() | st.integers(1, 20_000))
    def start(self, run: str, deadline_ms: int | None) -> None:
        row = self.do(self.scene.store.start(replace(new_run(run), deadline_ms=deadline_ms), now=self.now))
        if run not in self.model:
            deadline = None if deadline_ms is None else self.now + deadline_ms
            self.model[run] = ModelRun(deadline_at=deadline)
        assert row.status == self.model[run].status

    @rule(owner=OWNERS, code=BUILDS, limit=st.integers(1, 3), watched=st.sets(RUNS))
    def claim(self, owner: Owner, code: str, limit: int, watched: set[str]) -> None:
        seen = frozenset((DEFAULT_TENANT, RunId(run), self.model[run].epoch) for run in watched if run in self.model)
        claim = Claim(owner, {"clerk": code}, limit, LEASE, watched=seen)
        allowed = {run for run, model in self.model.items() if model.claimable(code, run in watched, self.now)}
        claimed = self.do(self.scene.store.claim(claim, now=self.now))
        runs = {one.row.id for one in claimed}
        assert runs <= allowed
        assert len(claimed) == min(limit, len(allowed))
        for one in claimed:
            self.model[one.row.id].claim(owner, LEASE, self.now)
            self.holds.append(held(one))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), owner=OWNERS, only=st.none() | st.frozensets(st.sampled_from(ALL)), spare=st.booleans())
    def seize(self, data: st.DataObject, owner: Owner, only: frozenset[Status] | None, spare: bool) -> None:
        run = data.draw(st.sampled_from(sorted(self.model)))
        allowed = self.model[run].seizable(only, spare, self.now)
        claimed = self.do(
            self.scene.store.seize(
                DEFAULT_TENANT, RunId(run), owner=owner, lease_ms=LEASE, only=only, unless_live=spare, now=self.now
            )
        )
        assert (claimed is not None) == allowed
        if claimed is not None:
            self.model[run].control(owner, LEASE, self.now)
            self.holds.append(held(claimed))

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), owner=OWNERS)
    def again(self, data: st.DataObject, owner: Owner) -> None:
        hold = data.draw(st.sampled_from(self.holds))
        claimed = self.do(self.scene.store.again(hold.authority, owner=owner, lease_ms=LEASE, now=self.now))
        assert (claimed is not None) == self.may(hold.authority)
        if claimed is not None:
            self.model[hold.run].control(owner, LEASE, self.now)
            self.holds.append(held(claimed))

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), progress=st.booleans(), turn=st.booleans(), forgive=st.booleans())
    def append(self, data: st.DataObject, progress: bool, turn: bool, forgive: bool) -> None:
        hold = data.draw(st.sampled_from(self.holds))
        append = Append(hold.authority, hold.head, (event(),), progress=progress, turn=turn, forgive=forgive)
        if self.store(hold, append):
            self.model[hold.run].append("emitted", progress=progress, turn=turn, forgive=forgive)

    @precondition(lambda self: self.holds)
    @rule(data=st.data(), later=st.none() | st.integers(0, 9_000), take=st.booleans(), code=st.none() | BUILDS)
    def change(self, data: st.DataObject, later: int | None, take: bool, code: str | None) -> None:
        hold = data.draw(st.sampled_from(self.holds))
        model = self.model[hold.run]
        status = data.draw(st.sampled_from([status for status in STATUSES if may_follow(model.status, status)]))
        change = Change(
            status,
            data.draw(st.sampled_from(REASONS.get(status, [""]))),
            wake_at=self.now + later if status == "waiting" and later is not None else None,
        )
        unread = self.do(self.scene.store.unread(DEFAULT_TENANT, hold.run)) if take else []
        append = Append(
            hold.authority, hold.head, (event(),), change,
            taken=tuple(message.id for message in unread),
            divergence=Divergence(code, "report") if code else None,
        )  # fmt: skip
        if self.store(hold, append):
            model.append("emitted")
            model.change(status, change.reason, change.wake_at)
            model.unread -= {message.sender_key for message in unread}
            model.diverged |= {code} if code else set()

    @precondition(lambda self: self.ended_holds())
    @rule(data=st.data())
    def reopen(self, data: st.DataObject) -> None:
        hold = data.draw(st.sampled_from(self.ended_holds()))
        model = self.model[hold.run]
        status = data.draw(st.sampled_from([status for status in STATUSES if status != model.status]))
        right = self.may(hold.authority) and hold.head.seq == len(model.entries)
        leaving = Append(hold.authority, hold.head, (event(),), Change(status), progress=True, forgive=True)
        with pytest.raises(WrongState if right else LeaseLost):
            self.do(self.scene.act(hold, leaving))

    def ended_holds(self) -> list[Hold]:
        return [hold for hold in self.holds if self.model[hold.run].status in ENDED]

    def store(self, hold: Hold, append: Append) -> bool:
        """Whether the append was let through; it must be exactly when authority and head are right."""
        allowed = self.may(hold.authority) and hold.head.seq == len(self.model[hold.run].entries)
        try:
            self.do(self.scene.act(hold, append))
        except LeaseLost:
            assert not allowed
            return False
        assert allowed
        return True

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def forge(self, data: st.DataObject) -> None:
        hold = data.draw(st.sampled_from(self.holds))
        epoch = self.model[hold.run].epoch
        head = Head(len(self.model[hold.run].entries), hold.head.digest)
        forged = Append(replace(hold.authority, epoch=epoch, token="0" * 32), head, (event(),))
        with pytest.raises(LeaseLost):
            self.do(self.scene.store.append(forged, now=self.now))

    @rule(owner=OWNERS, data=st.data())
    def renew(self, owner: Owner, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(self.holds), unique_by=id)) if self.holds else []
        renewed = self.scene.store.renew(owner, [hold.authority for hold in some], LEASE, now=self.now)
        assert renewed.kept == {hold.authority for hold in some if self.may(hold.authority)}
        for authority in renewed.kept:
            model = self.model[authority.run]
            assert ((DEFAULT_TENANT, authority.run) in renewed.unread) == bool(model.unread)
            if model.status == "running":
                model.expires_at = self.now + LEASE

    @precondition(lambda self: self.model)
    @rule(data=st.data(), key=st.sampled_from(["k1", "k2"]))
    def post(self, data: st.DataObject, key: str) -> None:
        run = data.draw(st.sampled_from(sorted(self.model)))
        fresh = key not in self.model[run].keys
        assert self.do(self.scene.post(run, key=key)) == fresh
        if fresh:
            self.model[run].keys.add(key)
            self.model[run].unread.add(key)

    @rule(milliseconds=st.sampled_from([1, 500, LEASE // 3, LEASE, 3 * LEASE]))
    def wait(self, milliseconds: int) -> None:
        self.scene.advance(milliseconds=milliseconds)

    def may(self, authority: Authority) -> bool:
        return self.model[authority.run].holder == authority.epoch

    @invariant()
    def rows_and_model_agree(self) -> None:
        for run, model in self.model.items():
            row = self.do(self.scene.row(run))
            assert (row.status, row.epoch, row.reason, row.lapses) == (
                model.status, model.epoch, model.reason, model.lapses,
            )  # fmt: skip
            assert (row.owner, row.expires_at, row.wake_at) == (model.owner, model.expires_at, model.wake_at)
            assert len(explain(row)) == (model.status not in ENDED), (run, explain(row))

    @invariant()
    def logs_are_whole(self) -> None:
        for run, model in self.model.items():
            assert [entry.kind for entry in self.do(self.scene.log(run))] == model.entries
            window = self.do(self.scene.store.window(DEFAULT_TENANT, RunId(run)))
            assert [entry.kind for entry in window] == model.replayed()

    @invariant()
    def what_is_due_is_known(self) -> None:
        look = self.do(self.scene.look())
        open_runs = [model for model in self.model.values() if model.status not in ENDED]
        due = [at for model in open_runs for at in (model.wake_at, model.deadline_at) if at and at > self.now]
        assert look.due_ms == (min(due) - self.now if due else None)
        assert look.claimable == any(model.claimable("b1", False, self.now) for model in open_runs)
        asked = {(one.run, one.why) for one in look.attention}
        late = {(run, "late") for run, model in self.model.items() if model.status in ENDED and model.unread}
        assert asked == late | {(run, "deadline") for run, model in self.model.items() if self.is_past(model)}

    def is_past(self, model: ModelRun) -> bool:
        if model.status in ENDED or model.deadline_at is None or model.deadline_at > self.now:
            return False
        return model.status != "running" or (model.expires_at is not None and model.expires_at <= self.now)


class InFile(Machine):
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        super().__init__()

    async def open_store(self, clock: ManualClock) -> Store:
        path = Path(self.folder.name) / "outlive.db"
        store = SQLiteStore(path, name="model", clock=clock, unsafe_durability=True, synchronous="off")
        await store.open()
        return store

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


def on_server(url: str) -> type[Machine]:
    return on_place(place_of(f"{url}%20-csynchronous_commit%3Doff&direct=yes"))


def on_place(place: Place) -> type[Machine]:
    async def clear(connection: psycopg.AsyncConnection[TupleRow]) -> None:
        async with connection.transaction():
            for table in ("run", "entry", "operation", "inbox", "divergence", "approval", "vote"):
                await connection.execute(f"delete from {table}".encode())

    class OnServer(Machine):
        async def open_store(self, clock: ManualClock) -> Store:
            store = PostgresStore(place, clock=clock, unsafe_durability=True)
            await store.open()
            async with await psycopg.AsyncConnection.connect(place.conninfo) as connection:
                await clear(connection)
            return store

    return OnServer


def check(machine: type[Machine], examples: int, steps: int) -> None:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=slow, database=None
        ),
    )


def test_store_and_model_agree() -> None:
    check(InFile, examples=40, steps=40)


def test_store_and_model_agree_on_postgres(postgres: str) -> None:
    check(on_server(postgres), examples=15, steps=30)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_store_and_model_agree_for_long() -> None:
    check(InFile, examples=600, steps=80)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_store_and_model_agree_on_postgres_for_long(postgres: str) -> None:
    check(on_server(postgres), examples=200, steps=80)
