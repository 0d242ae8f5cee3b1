"""What a release has recorded can be read for ever: imported, verified, shown, and replayed to the same end.

Nothing of it is executed again. A failure names the file and the entry that the present code cannot read.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outlive import Agent, Run
from outlive.app import inspect, operate, stop
from outlive.app.audit import Progress, verify_run
from outlive.app.carry import bundle_of, take_in
from outlive.engine.control import Control
from outlive.errors import BadBundle
from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.log.fold import fold
from outlive.model.ids import DEFAULT_TENANT, Owner
from outlive.model.operation import IN_DOUBT
from outlive.testing.clock import ManualClock
from tests.corpus.deck import Deck, Place, Token, Untouchable, opened
from tests.corpus.people import app
from tests.corpus.tape import LOGS, Tape, differing, lay, live, named, recorded, told
from tests.sweep.corpus import charge, charge_on_thread, put, triple

ENDED, LIVE = recorded(), live()
VERSIONS = sorted({path.relative_to(LOGS).parts[0] for path in (*ENDED, *LIVE)})
# What was recorded in either store is read in a file. Of each harness and of what stores do differently, these are read
# on a server, too, where others have recorded them.
CROSSWISE = (
    "asks", "asks_a_server", "clerk", "converses", "fork_that_reuses", "graph_pays", "has_it_from_another_run",
    "in_a_transaction", "loses_with_branches", "lost_entries", "of_pydantic", "of_sdk", "regrets", "regrets-rollback",
    "reminded_and_escalated", "talk", "transactional", "live/diverged", "live/held", "live/in_doubt",
    "live/of_sdk_waits_for_approval", "live/waits_in_a_turn",
)  # fmt: skip
# Something has happened that lets them go on. No bundle has the business keys of others: there is none to wait for.
HAVE_NEWS = ("told_to_a_blocked_run", "waits_for_a_key")
each = pytest.mark.parametrize("path", ENDED, ids=named)
each_live = pytest.mark.parametrize("path", LIVE, ids=named)


TABLES = (
    "run, entry, operation, inbox, divergence, blob, approval, vote, business_key, tenant, worker, notification, "
    "delivery"
)


@pytest.fixture(scope="module")
def schema(postgres_server: str) -> Iterator[str]:
    """One for all that is read on a server: to make one takes longer than to read a run."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("drop schema if exists outlive_corpus cascade")
        yield f"{postgres_server}&schema=outlive_corpus&options=-csearch_path%3Doutlive_corpus"
        connection.execute("drop schema if exists outlive_corpus cascade")


@pytest.fixture
async def on_server(schema: str) -> str:
    """Empty."""
    made = await opened(schema, ManualClock())
    made.sql(f"truncate {TABLES}")
    await made.store.close()
    return schema


def said(one: Entry) -> tuple[str, str, str | None]:
    """What an entry says, but for the line of code that it names: lines move."""
    return one.kind, re.sub(r',"at":"[^"]*"', "", one.body), one.payload


def name_of(path: Path) -> str:
    return f"live/{path.stem}" if path.parent.name == "live" else path.stem


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def crosswise(paths: list[Path]) -> list[Path]:
    """Those of files, that go to a server."""
    return [path for path in paths if "sqlite" in path.parts and name_of(path) in CROSSWISE]


# ---- what there is


def test_all_kinds_of_entries_are_recorded_on_both_stores() -> None:
    """A kind that is added is recorded with it: name an agent for it in people.py, or a scene in scenes.py."""
    for store in ("sqlite", "postgres"):
        found = {str(one["kind"]) for path in ENDED if path.parent.name == store for one in Tape.of(path).entries}
        assert sorted(set(kinds.KINDS) - found) == [], f"no log of {store} has these kinds"


def test_runs_stand_still_for_every_reason() -> None:
    standing = {(str(Tape.of(path).row["status"]), str(Tape.of(path).row["reason"])) for path in LIVE}
    assert {status for status, _ in standing} == {"ready", "running", "waiting", "blocked"}
    assert {reason for status, reason in standing if status == "blocked"} >= {
        "diverged", "entries lost", "operation in doubt", "done elsewhere",
    }  # fmt: skip
    assert any(Tape.of(path).row["paused_at"] is not None for path in LIVE)


def test_both_stores_have_recorded_the_same_runs() -> None:
    found = {
        store: {name_of(path) for path in (*ENDED, *LIVE) if store in path.parts} for store in ("sqlite", "postgres")
    }
    assert found["sqlite"] == found["postgres"]
    assert set(CROSSWISE) <= found["sqlite"]
    assert len(found["sqlite"]) > 80


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_release_has_recorded_is_as_it_was(version: str) -> None:
    """Nothing is recorded again, changed or taken away; what is new is added by the recorder."""
    differ = differing(LOGS / version)
    assert differ == [], f"{version}/: not what was recorded; restore it, and record only what is missing"


def test_a_log_that_was_changed_or_taken_away_is_named(tmp_path: Path) -> None:
    version = tmp_path / VERSIONS[0]
    shutil.copytree(LOGS / VERSIONS[0], version)
    (version / "sqlite" / "turns.jsonl").unlink()
    with (version / "postgres" / "live" / "paused.jsonl").open("a") as log:
        log.write("\n")
    (version / "sqlite" / "new.jsonl").write_text("")
    changed = ["postgres/live/paused.jsonl", "sqlite/turns.jsonl"]
    assert differing(version, added=False) == changed
    assert differing(version) == sorted([*changed, "sqlite/new.jsonl"])


def test_files_stay_small() -> None:
    sizes = {named(path): path.stat().st_size for path in (*ENDED, *LIVE)}
    assert [name for name, size in sizes.items() if size > 60_000] == []
    assert sum(sizes.values()) < 4_000_000


# ---- what it is read as


@asynccontextmanager
async def imported(path: Path, place: Place) -> AsyncIterator[tuple[Deck, Tape]]:
    """A store into which the run was imported as it was exported, with those that it goes back to and that undo it."""
    tape = Tape.of(path)
    made = await opened(place, ManualClock(now=int(tape.entries[-1]["at"] or 0), seed="imported"))
    made.run = tape.run
    try:
        for one in (*(other.path for other in tape.kin()), path, *tape.undone()):
            assert (await take_in(made.store, lines_of(one), None)).added
        yield made, tape
    finally:
        await made.store.close()


async def reads(path: Path, place: Place) -> None:
    async with imported(path, place) as (made, tape):
        log = await made.log()
        recorded = [(one["seq"], one["kind"], one["body"], one["payload"]) for one in tape.entries]
        assert [(one.seq, one.kind, one.body, one.payload) for one in log][: len(recorded)] == recorded
        for entry in log:
            try:
                inspect.line(entry)
            except Exception as error:
                raise AssertionError(told(path, entry.seq, f"{entry.kind} cannot be shown: {error}")) from error
        folded = fold(await made.store.window(DEFAULT_TENANT, tape.run))
        assert folded.started is not None, told(path, 0, "the fold has no start")
        misfits = [one async for one in verify_run(made.store, DEFAULT_TENANT, tape.run, Progress())]
        assert [one for one in misfits if not one.what.startswith("approval ")] == [], named(path)
        report = await operate.report(made.store, DEFAULT_TENANT, tape.run)
        assert report.row.status == ("ready" if tape.row["status"] == "running" else tape.row["status"])
        if tape.row["ended_at"] is not None:
            again = [line.encode() async for line in bundle_of(made.store, DEFAULT_TENANT, tape.run, with_key=True)]
            assert again == lines_of(path), f"{named(path)} is exported otherwise than it was"


@pytest.mark.parametrize("path", [*ENDED, *LIVE], ids=named)
async def test_a_recorded_run_is_imported_verified_and_shown(path: Path, tmp_path: Path) -> None:
    await reads(path, tmp_path)


@pytest.mark.parametrize("path", crosswise([*ENDED, *LIVE]), ids=named)
async def test_it_is_so_on_a_server(path: Path, on_server: str) -> None:
    await reads(path, on_server)


# ---- what it replays to


async def replays(path: Path, place: Place) -> None:
    made, log = await lay(path, place)
    tape = Tape.of(path)
    try:
        before = await made.log()
        end = log[len(before)]
        try:
            row = await made.play(made.worker(Untouchable(), Token()))
        except AssertionError as error:
            raise AssertionError(told(path, end.seq, f"it does not come to it: {error}")) from error
        assert made.executed == [], told(path, end.seq, f"it executes what was recorded, or more: {made.executed}")
        found = await made.log()
        assert found[: len(before)] == before == log[: len(before)]
        if tape.row["reason"] == "terminated":
            # Its code was not asked: it stands where it stood.
            assert (row.status, row.reason) == ("blocked", "operation in doubt"), told(path, end.seq, row.detail)
            return
        added = [said(entry) for entry in found[len(before) :] if entry.kind != "claimed"]
        assert added == [said(end)], told(path, end.seq, f"it ends otherwise: {row.status} {row.reason} {row.detail}")
    finally:
        await made.store.close()


@each
async def test_a_recorded_log_replays_to_its_end(path: Path, tmp_path: Path) -> None:
    await replays(path, tmp_path)


@pytest.mark.parametrize("path", crosswise(ENDED), ids=named)
async def test_a_recorded_log_replays_on_a_server(path: Path, on_server: str) -> None:
    await replays(path, on_server)


async def goes_on(path: Path, place: Place) -> None:
    """Who stands still stands there again; who has something to do does that, and nothing that is settled."""
    async with imported(path, place) as (made, tape):
        before = await made.store.operations(DEFAULT_TENANT, tape.run)
        await stop.resume(
            Control(made.store, made.clock, Owner("person")), DEFAULT_TENANT, tape.run, who="ada", why="it is here now"
        )
        worker = made.worker(made.world(), Token())
        await made.settle(worker)
        row, log = await made.row(), await made.log()
        assert len(log) > len(tape.entries) + 3, told(path, log[-1].seq, "nobody has claimed it")
        assert (tape.row["reason"] == "diverged") == (row.reason == "diverged"), told(path, log[-1].seq, row.detail)
        settled = {
            one.id: one for one in before if one.status not in (*IN_DOUBT, "retrying", "absent", "held", "later")
        }
        after = {one.id: one for one in await made.store.operations(DEFAULT_TENANT, tape.run)}
        assert {id: after[id] for id in settled} == settled, told(path, log[-1].seq, "what was settled has changed")
        if tape.row["status"] in ("waiting", "blocked") and path.stem not in HAVE_NEWS:
            assert made.executed == [], told(path, log[-1].seq, f"it did {made.executed}")
            assert row.status == tape.row["status"], told(path, log[-1].seq, f"{row.status} {row.reason} {row.detail}")


@each_live
async def test_a_run_that_had_not_ended_goes_on_where_it_was(path: Path, tmp_path: Path) -> None:
    await goes_on(path, tmp_path)


@pytest.mark.parametrize("path", crosswise(LIVE), ids=named)
async def test_a_run_that_had_not_ended_goes_on_on_a_server(path: Path, on_server: str) -> None:
    await goes_on(path, on_server)


# ---- that it would be seen


async def test_a_kind_that_is_not_known_any_more_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = next(one for one in ENDED if one.stem == "converses")
    monkeypatch.delitem(kinds.KINDS, "woken")
    with pytest.raises(AssertionError, match=r"(sqlite|postgres)/converses, entry \d+: woken cannot be shown"):
        await reads(path, tmp_path)


async def other(run: Run[Any], input: str) -> list[int]:
    return [await run.step(triple, 1)]


async def more(run: Run[Any], input: str) -> list[str]:
    return [await run.call(charge, input), await run.call(charge_on_thread, input), await run.call(put, input)]


async def test_code_that_asks_for_something_else_is_named_with_file_and_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = next(one for one in ENDED if one.stem == "steps")
    changed: Agent[str, list[int]] = Agent("steps", app.registry.agents["steps"].version, other)
    monkeypatch.setitem(app.registry.agents, "steps", changed)
    with pytest.raises(AssertionError, match=r"/steps, entry \d+: it ends otherwise: blocked diverged"):
        await replays(path, tmp_path)


async def test_what_is_executed_again_is_named_with_file_and_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = next(one for one in ENDED if one.stem == "looked_up")
    changed: Agent[str, list[str]] = Agent("looked_up", app.registry.agents["looked_up"].version, more)
    monkeypatch.setitem(app.registry.agents, "looked_up", changed)
    with pytest.raises(AssertionError, match=r"/looked_up, entry \d+: it executes what was recorded, or more: \['put'"):
        await replays(path, tmp_path)


def test_a_line_that_was_changed_is_named_with_its_file(tmp_path: Path) -> None:
    path = next(one for one in ENDED if one.stem == "turns")
    changed = path.read_bytes().replace(b"progress", b"regress!", 1)
    assert changed != path.read_bytes()
    (tmp_path / "turns.jsonl").write_bytes(changed)
    with pytest.raises(AssertionError, match=r"turns.*line \d+") as failure:
        Tape.of(tmp_path / "turns.jsonl")
    assert isinstance(failure.value.__cause__, BadBundle)
