"""Runs carried from one store to another: nothing is lost or changed, and what was tampered with is refused."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive import Agent
from outlive.app.audit import Progress, verify_run
from outlive.app.carry import Carried, bundle_of, take_in, verify
from outlive.duty.bundle import Bundle, key_id
from outlive.errors import BadBundle, ChainBroken, KeyDiffers, Refused, RunExists, UnknownRun
from outlive.log.kinds import Ended, draft
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import Status
from outlive.store.keeping import Kept
from outlive.store.port import Append, Change, Divergence
from outlive.store.postgres import PostgresStore
from outlive.store.postgres import bundle as in_schema
from outlive.store.postgres.connection import place_of
from outlive.store.sqlite import SQLiteStore
from outlive.store.sqlite import bundle as in_file_
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import Hold, Scene, event, operation
from tests.corpus.deck import KEY, RUN, Deck, Token, Untouchable, deck
from tests.corpus.tape import Tape, lay, named, recorded
from tests.duty.conftest import in_file
from tests.duty.ground import LARGE, end, kept, left, sql
from tests.store.test_sqlite_file import migrated
from tests.sweep.corpus import CORPUS, Bank, app

# What is read of a server, and what replays, is in tests/corpus: here it is carried on in the midst of its log.
RECORDED = [path for path in recorded() if path.parent.name == "sqlite"]
KEY_HEX = KEY.hex()


async def exported(
    store: Kept, run: str = "r", *, with_key: bool = True, tenant: Tenant = DEFAULT_TENANT
) -> list[bytes]:
    return [line.encode() async for line in bundle_of(store, tenant, run, with_key=with_key)]


async def misfits(store: Kept, run: str, tenant: Tenant = DEFAULT_TENANT) -> list[str]:
    return [f"{one.what}: {one.why}" async for one in verify_run(store, tenant, run, Progress())]


@asynccontextmanager
async def empty(place: str | Path, now: int) -> AsyncIterator[Kept]:
    clock = ManualClock(now=now, seed="another store")  # whose keys are others
    store: SQLiteStore | PostgresStore
    if isinstance(place, Path):
        store = SQLiteStore(place, name="other", clock=clock, unsafe_durability=True, synchronous="off")
    else:
        store = PostgresStore(place_of(place), clock=clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def full(scene: Scene, run: str = "r") -> Hold:
    """A run with something in every table, that goes on."""
    hold = await scene.hold(run)
    await scene.post(run, key="read")
    [message] = await scene.store.unread(DEFAULT_TENANT, RunId(run))
    rows: tuple[OperationRow, ...] = (
        operation(hold, 1),
        replace(operation(hold, 2), status="unknown", notes={"a": "ä"}),
    )
    report = Divergence("b9", "other calls")
    await scene.act(
        hold, Append(hold.authority, hold.head, (event(payload=LARGE),), operations=rows, divergence=report)
    )
    await scene.act(hold, Append(hold.authority, hold.head, (event(payload='"ä\\n€"'),), taken=(message.id,)))
    await scene.post(run, key="unread")
    return hold


def rows_of(scene: Scene, table: str, order: str) -> list[tuple[object, ...]]:
    """What is in a table, but for numbers that each store draws anew."""
    names = {
        "operation": "id, call, tool, status, notes, digest, updated_at",
        "inbox": "topic, sender_key, body, at, taken_seq",
        "divergence": "code, report, at",
    }
    return sql(scene, f"select {names[table]} from {table} order by {order}")


async def test_all_that_belongs_to_a_run_arrives(scene: Scene, tmp_path: Path) -> None:
    hold = await full(scene)
    await scene.append(hold, draft(Ended(status="failed", reason="x"), at=7), change=Change("failed", reason="x"))
    lines = await exported(kept(scene))
    (tmp_path / "a").mkdir()
    other = await Scene.set(in_file(tmp_path / "a"))
    assert await take_in(kept(other), lines, None) == Carried(
        "default", "r", 5, "failed", True, own_key=True, added=True
    )
    assert await exported(kept(other)) == lines
    for table, order in (("operation", "1"), ("inbox", "2"), ("divergence", "1")):
        assert rows_of(other, table, order) == [tuple(row) for row in rows_of(scene, table, order)]
    assert left(other) == left(scene)
    assert (await other.log())[2].payload == LARGE
    assert await kept(other).key(DEFAULT_TENANT) == await kept(scene).key(DEFAULT_TENANT)
    assert sql(other, "select imported_at, paused_at from run") == [(other.now, None)]
    await other.close()


async def test_the_same_log_changes_nothing_and_a_longer_one_is_left(scene: Scene) -> None:
    hold = await full(scene)
    early = await exported(kept(scene))
    before = left(scene)
    assert not (await take_in(kept(scene), early, None)).added
    await scene.append(hold, event("more"))
    assert not (await take_in(kept(scene), early, None)).added
    assert (await scene.row()).status == "running"
    assert left(scene) == {**before, "entry": before["entry"] + 1}


async def test_another_log_under_the_same_id_is_refused(scene: Scene, tmp_path: Path) -> None:
    hold = await full(scene)
    early = await exported(kept(scene))
    await scene.append(hold, event("one way"))
    late = await exported(kept(scene))
    async with empty(tmp_path / "other.db", 5_000) as other:
        await take_in(other, early, None)
        sql(scene, "update run set id = 'x'")  # out of the way of the next one
        with pytest.raises(RunExists, match="log"):
            await take_in(other, late, None)
        [row] = await other.runs_of(DEFAULT_TENANT, after=RunId(""), limit=9)
        # The import has added that it took the run out of its owner's hands.
        assert row.head.seq == 6
        assert await misfits(other, "r") == [
            "operation r/op1: no entry speaks of it",
            "operation r/op2: no entry speaks of it",
        ]


@pytest.mark.parametrize("status", ["ready", "waiting", "blocked", "running"])
async def test_a_run_that_had_not_ended_arrives_paused_and_unowned(
    scene: Scene, tmp_path: Path, status: Status
) -> None:
    hold = await full(scene)
    if status != "running":
        await scene.become(hold, status, reason="why", wake_at=scene.now if status == "waiting" else None)
    lines = await exported(kept(scene))
    (tmp_path / "a").mkdir()
    other = await Scene.set(in_file(tmp_path / "a"))
    found = await take_in(kept(other), lines, None)
    assert (found.status, found.ended, found.added) == (status, False, True)
    row = await other.row()
    assert (row.owner, row.expires_at, row.paused_at) == (None, None, other.now)
    assert row.status == ("ready" if status == "running" else status)
    assert row.epoch == 2
    assert len(await other.log()) == row.head.seq
    assert await other.claims() == []
    assert not (await other.look()).claimable
    other.advance(days=400)
    assert await other.claims() == []
    sql(other, "update run set paused_at = null")
    assert [one.row.id for one in await other.claims()] == ["r"]
    assert not (await take_in(kept(other), lines, None)).added
    await other.close()


async def test_a_pause_that_a_run_came_with_stays_as_it_was(scene: Scene, tmp_path: Path) -> None:
    await scene.start()
    sql(scene, "update run set paused_at = 77")
    async with empty(tmp_path / "other.db", 5_000) as other:
        await take_in(other, await exported(kept(scene)), None)
        assert (await other.runs_of(DEFAULT_TENANT, after=RunId(""), limit=9))[0].paused_at == 77


async def test_a_key_has_to_be_known_or_carried_and_is_never_changed(scene: Scene, tmp_path: Path) -> None:
    await full(scene)
    bare, carrying = await exported(kept(scene), with_key=False), await exported(kept(scene))
    assert KEY_HEX not in str(bare)
    secret = await kept(scene).key(DEFAULT_TENANT)
    assert secret.hex() not in b"".join(bare).decode()
    assert secret.hex() in carrying[0].decode()
    async with empty(tmp_path / "other.db", 5_000) as other:
        with pytest.raises(KeyDiffers, match="has no key here yet, and the bundle carries none"):
            await take_in(other, bare, None)
        assert await other.known_key(DEFAULT_TENANT) is None
        with pytest.raises(KeyDiffers):
            await verify(other, bare, None)
        assert (await verify(other, carrying, None)).own_key
        assert await other.known_key(DEFAULT_TENANT) is None
        own = await other.key(DEFAULT_TENANT)
        with pytest.raises(KeyDiffers, match="import it into a tenant of its own, with --tenant"):
            await take_in(other, carrying, None)
        assert (await verify(other, carrying, None)).own_key
        assert (await take_in(other, carrying, Tenant("restored"))).added
        assert await misfits(other, "r", Tenant("restored")) == [
            "operation r/op1: no entry speaks of it", "operation r/op2: no entry speaks of it"
        ]  # fmt: skip
        assert await other.key(DEFAULT_TENANT) == own
        assert await other.key(Tenant("restored")) == secret
        # By now the key is known: it need not be carried any more.
        assert not (await take_in(other, bare, Tenant("restored"))).added
        assert not (await verify(other, bare, Tenant("restored"))).own_key
        parts = Bundle(carrying).parts(secret)
        with pytest.raises(Refused, match="another key"):
            await other.put_run(DEFAULT_TENANT, parts, secret)


async def test_only_one_key_can_be_the_first(scene: Scene) -> None:
    assert key_id(b"a" * 32) != key_id(b"b" * 32)
    assert len(key_id(b"a" * 32)) == 16


async def test_a_log_that_does_not_fit_is_not_exported(scene: Scene) -> None:
    await end(scene, "r", payload=LARGE)
    sql(scene, "delete from blob")
    with pytest.raises(ChainBroken, match="entry 2"):
        await exported(kept(scene))
    sql(scene, "delete from entry where seq = 4")
    with pytest.raises(UnknownRun):
        await exported(kept(scene), "none")
    with pytest.raises(UnknownRun):
        await exported(kept(scene), "r", tenant=Tenant("nobody"))


async def test_a_log_that_is_too_short_is_not_exported(scene: Scene) -> None:
    await end(scene, "r")
    sql(scene, "delete from entry where seq = 3")
    with pytest.raises(ChainBroken):
        await exported(kept(scene))


async def test_a_run_that_is_just_forgotten_is_neither_exported_nor_imported(scene: Scene) -> None:
    await end(scene, "r")
    lines = await exported(kept(scene))
    sql(scene, "update run set phase = 'forgetting'")
    with pytest.raises(UnknownRun):
        await exported(kept(scene))
    with pytest.raises(RunExists, match="just being forgotten"):
        await take_in(kept(scene), lines, None)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    async def make() -> list[bytes]:
        scene = await Scene.set(in_file(tmp_path_factory.mktemp("bundle")))
        await full(scene)
        try:
            return await exported(kept(scene))
        finally:
            await scene.close()

    return asyncio.run(make())


def refusal(lines: Sequence[bytes], secret: bytes) -> int | None:
    """The line that is refused."""
    try:
        for _ in Bundle(lines).parts(secret):
            pass
    except BadBundle as bad:
        assert f"line {bad.line} of the bundle" in str(bad)
        return bad.line
    return None


def first_difference(one: Sequence[bytes], two: Sequence[bytes]) -> int:
    same = 0
    while same < min(len(one), len(two)) and one[same] == two[same]:
        same += 1
    return same + 1


@given(
    how=st.sampled_from(["drop", "swap", "repeat", "cut", "flip"]), one=st.integers(0, 10**6),
    two=st.integers(0, 10**6), bit=st.integers(0, 7),
)  # fmt: skip
def test_whatever_is_done_to_a_bundle_is_found_where_it_was_done(
    bundle: list[bytes], how: str, one: int, two: int, bit: int
) -> None:
    secret = Bundle(bundle).header.key
    assert secret is not None
    assert refusal(bundle, secret) is None
    changed, place, whole = [*bundle], one % len(bundle), bytearray(b"".join(bundle))
    match how:
        case "drop":
            del changed[place]
        case "swap":
            other = (place + 1 + two % (len(bundle) - 1)) % len(bundle)
            changed[place], changed[other] = bundle[other], bundle[place]
        case "repeat":
            changed.insert(place, bundle[place])
        case "cut":
            changed = lines_of(bytes(whole[: one % (len(whole) - 1)]))
        case _:
            whole[one % (len(whole) - 1)] ^= 1 << bit
            changed = lines_of(bytes(whole))
    # A line that was only not ended is whole all the same.
    if changed and bundle[len(changed) - 1 : len(changed)] == [changed[-1] + b"\n"]:
        changed[-1] += b"\n"
    assert refusal(changed, secret) == first_difference(changed, bundle)


def test_a_bundle_that_is_cut_off_between_two_lines_is_refused_where_it_ends(bundle: list[bytes]) -> None:
    secret = Bundle(bundle).header.key
    assert secret is not None
    for count in range(1, len(bundle)):
        assert refusal(bundle[:count], secret) == count + 1


def lines_of(text: bytes) -> list[bytes]:
    """As a file gives them."""
    return list(io.BytesIO(text))


@pytest.mark.parametrize("line", range(1, 13))
async def test_a_bundle_that_was_tampered_with_leaves_the_store_as_it_was(
    bundle: list[bytes], scene: Scene, line: int
) -> None:
    assert len(bundle) == 12
    secret = Bundle(bundle).header.key
    assert secret is not None
    changed = [*bundle]
    changed[line - 1] = re.sub(
        rb'"mac":"(.)', lambda found: b'"mac":"' + (b"1" if found[1] == b"0" else b"0"), changed[line - 1]
    )
    with pytest.raises(BadBundle) as bad:
        await take_in(kept(scene), changed, None)
    assert bad.value.line == line
    assert set(left(scene).values()) == {0}
    assert await kept(scene).known_key(DEFAULT_TENANT) is None


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"", "it is no JSON"),
        (b"[]\n", "it has no digest at its end"),
        (b'{"bundle":"outlive","format":1}\n', "it has no digest at its end"),
        (b'{"bundle":"other","mac":"00"}\n', "it is not the header of a bundle"),
        (b'{"bundle":"outlive","format":2,"mac":"00"}\n', "its format is 2, this release reads 1"),
        (b'{"bundle":"outlive","format":1,"mac":"00"}\n', "it is not the header of a bundle"),
        (
            b'{"bundle":"outlive","format":1,"tenant":"t","run":"r","key_id":"k","key":"xx","mac":"00"}\n',
            "not the header",
        ),
    ],
)
def test_what_is_no_bundle_is_refused(header: bytes, why: str) -> None:
    with pytest.raises(BadBundle, match=f"line 1 of the bundle: .*{why}"):
        Bundle([header])


def played() -> list[Agent[str, object]]:
    return [agent for agent in CORPUS if agent.name not in ("has_secret",)]


@asynccontextmanager
async def done(agent: Agent[str, object], directory: Path) -> AsyncIterator[Deck]:
    """A run of the corpus that nobody disturbed."""
    made = await deck(directory, ManualClock(), KEY)
    client = type(app)(clock=made.clock)
    client.registry = app.registry
    client.use(made.store)
    await client.start(agent, "inv", id=RUN)
    await made.play(made.worker(Bank(), Token()))
    try:
        yield made
    finally:
        await made.store.close()


@pytest.mark.parametrize("agent", played(), ids=lambda agent: agent.name)
async def test_a_run_of_the_corpus_goes_from_file_to_server_and_back(
    agent: Agent[str, object], tmp_path: Path, postgres: str
) -> None:
    async with done(agent, tmp_path) as made:
        lines, now = await exported(made.store, RUN), made.clock.now()
        assert await misfits(made.store, RUN) == []
    async with empty(postgres, now) as there:
        assert (await take_in(there, lines, None)).added
        assert await misfits(there, RUN) == []
        again = await exported(there, RUN)
    row = json.loads(lines[1])["row"]
    assert again == lines or row["ended_at"] is None
    async with empty(tmp_path / "back.db", now) as back:
        assert (await take_in(back, again, None)).added
        assert await misfits(back, RUN) == []
        assert await exported(back, RUN) == again


@pytest.mark.parametrize("path", RECORDED, ids=named)
async def test_a_recorded_log_replays_to_its_end_where_it_was_imported(path: Path, tmp_path: Path) -> None:
    made, _ = await lay(path, tmp_path)
    kin = [other.path.read_bytes().splitlines(keepends=True) for other in Tape.of(path).kin()]
    lines, now = await exported(made.store, made.run), made.clock.now()
    before = await made.log()
    await made.store.close()
    (tmp_path / "there").mkdir()
    clock = ManualClock(now=now)
    store = SQLiteStore(tmp_path / "there" / "x.db", name="x", clock=clock, unsafe_durability=True, synchronous="off")
    await store.open()
    try:
        for one in (*kin, lines):
            assert (await take_in(store, one, None)).added
        there = Deck(store, tmp_path / "there", clock, [], made.run)
        log = await there.log()
        assert (log[:-2], [one.kind for one in log[-2:]]) == (before, ["claimed", "paused"])
        worker = there.worker(Untouchable(), Token())
        assert await worker.claim() == 0
        await store._write(lambda database, _: database.execute("update run set paused_at = null"))
        row = await there.play(worker)
        assert there.executed == []
        assert row.ended or row.status == "blocked"
        assert (await there.log())[: len(before)] == before
    finally:
        await store.close()


@given(data=st.data())
async def test_a_log_that_was_cut_anywhere_goes_there_and_back(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path = data.draw(st.sampled_from(RECORDED))
    keep = data.draw(st.integers(2, Tape.of(path).end))
    (folder / "from").mkdir()
    made, _ = await lay(path, folder / "from", keep)
    try:
        lines = await exported(made.store, made.run)
        async with empty(folder / "to.db", made.clock.now()) as other:
            await take_in(other, lines, None)
            again = await exported(other, made.run)
            # It had not ended: that it is paused now is all that was added.
            before, after = [list(map(parts_of, one)) for one in (lines, again)]
            rows = len([one for one in before if one.get("kind") in ("run", "entry")])
            assert (after[2 : rows + 1], len(after)) == (before[2 : rows + 1], len(before) + 2)
    finally:
        await made.store.close()


def parts_of(line: bytes) -> dict[str, object]:
    body: dict[str, object] = json.loads(line)
    del body["mac"]
    return body


def test_every_column_is_carried_or_known_to_stay() -> None:
    """A column that is added has to be carried too: here and in both bundle.sql."""
    stays = {
        "run": {"tenant", "token", "owner", "lease_ms", "renewed_at", "expires_at", "phase"},
        "entry": {"tenant", "run_id"},
        "operation": {"tenant", "run_id", "position"},
        "inbox": {"tenant", "run_id", "id"},
        "divergence": {"tenant", "run_id"},
    }
    arrives = {"run": {"ready_at", "imported_at"}}
    named = {"run": "run", "entry": "entry", "operation": "operation", "inbox": "message", "divergence": "divergence"}
    database = migrated()
    for table, kind in named.items():
        columns = {row["name"] for row in database.execute(f"pragma table_info({table})")} - stays[table]
        for module in (in_file_, in_schema):
            put = module._STATEMENTS[f"put_{kind}"].partition("values" if table == "run" else "select")[0]
            taken = set(re.findall(r"\w+", put.partition("(")[2].partition(")")[0])) - {"tenant", "run_id"}
            assert taken == columns, (module.__name__, table)
            part = "run_part" if table == "run" else f"{kind}_parts" if kind != "entry" else "entry_parts"
            read = re.findall(r"\w+", module._STATEMENTS[part].partition("from")[0])
            assert columns - arrives.get(table, set()) <= set(read), (module.__name__, table)
    database.close()
