"""`outlive doctor` on both stores: each run that is as it should be is explained, each that is not is named."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outlive.app.explain import Served, explain
from outlive.cli import codes
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import Head, RunRow
from outlive.store.survey import Seen
from outlive.testing import postgres as servers
from tests.cli.conftest import Cli
from tests.cli.survey_app import app, listen, nap, rows_of, served, settings

_LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
_MANY_MS = 600_000


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    found: str = request.getfixturevalue("postgres")
    return found


async def examined(cli: Cli, url: str, *more: str) -> tuple[int, dict[str, Any]]:
    done = await asyncio.to_thread(cli, "doctor", "--json", "--store", url, *more)
    return done.exit_code, json.loads(done.stdout)


def troubles(shown: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((one["trouble"], one["subject"]) for one in shown["findings"])


async def test_what_is_as_it_should_be_is_explained(cli: Cli, url: str) -> None:
    async with served(url):
        code, shown = await examined(cli, url)
        assert (code, shown["findings"], shown["healthy"]) == (codes.OK, [], True)
        assert (shown["runs"], shown["explained"]) == (4, {"blocked": 1, "message": 2, "timer": 1})
        done = await asyncio.to_thread(cli, "doctor", "--store", url)
        assert (done.exit_code, done.stdout) == (codes.OK, "")
        assert "4 runs have not ended (explained by: blocked 1, message 2, timer 1)\nnothing to look at" in done.stderr


async def test_a_pause_and_a_live_lease_explain_a_run(cli: Cli, url: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            rows("update run set paused_at = 1 where id = 'sleeps'")
            rows(
                "update run set status = 'running', wake_at = null, owner = 'w', lease_ms = 30000, renewed_at = ?,"
                " expires_at = ? where id = 'listens'", 2**50, 2**50,
            )  # fmt: skip
        code, shown = await examined(cli, url)
        assert (code, shown["explained"]) == (codes.OK, {"blocked": 1, "lease": 1, "message": 1, "pause": 1})


@pytest.mark.parametrize(
    ("change", "run", "says"),
    [
        ("reason = ''", "listens", "it waits for neither a time nor a message"),
        ("reason = ''", "doubts", "it is blocked for no reason that is named"),
        ("status = 'asleep'", "listens", "its status is 'asleep', which is none"),
        ("status = 'succeeded'", "listens", "it has succeeded, but when it ended is not recorded"),
        ("status = 'running', wake_at = null", "sleeps", "it is running, but has no lease"),
        ("owner = 'ghost'", "listens", "it is waiting, but ghost has a lease of it"),
    ],
)
async def test_a_run_that_nothing_explains_is_named(cli: Cli, url: str, change: str, run: str, says: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            rows(f"update run set {change} where id = '{run}'")
        code, shown = await examined(cli, url)
        assert code == codes.ERROR
        assert shown["findings"] == [
            {"trouble": "unexplained run", "tenant": "default", "subject": run, "why": says}
        ]  # fmt: skip


async def test_a_run_past_its_deadline_that_nobody_ended_is_named(cli: Cli, url: str) -> None:
    async with served(url):
        pass
    with rows_of(url) as rows:
        rows("update run set deadline_at = created_at - ? where id = 'asks'", _MANY_MS)
    _, shown = await examined(cli, url)
    assert [one["subject"] for one in shown["findings"] if "its deadline passed" in one["why"]] == ["asks"]


async def test_runs_that_no_live_worker_serves_are_named(cli: Cli, url: str) -> None:
    async with served(url):
        pass
    await app.open(settings(url))
    async with app:
        await app.start(nap, None, id="new")
        with rows_of(url) as rows:
            rows("update run set wake_at = 1 where id = 'sleeps'")
        await app.handle(listen, "listens").send("news", "hello", key="k1")
        code, shown = await examined(cli, url)
    assert code == codes.ERROR
    assert {one["subject"]: one["why"] for one in shown["findings"]} == {
        "new": "it is ready, and no live worker serves nap",
        "sleeps": "its time has come, and no live worker serves nap",
        "listens": "something has arrived for it, and no live worker serves listen",
    }
    assert {one["trouble"] for one in shown["findings"]} == {"unserved run"}


async def test_a_run_from_which_every_live_build_has_diverged_is_named(cli: Cli, url: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            build = json.loads(str(rows("select serves from worker")[0][0]))["nap"]
            rows("insert into divergence values ('default', 'sleeps', ?, 'other calls', 1)", build)
            rows("update run set wake_at = 1 where id = 'sleeps'")
        code, shown = await examined(cli, url)
    assert (code, troubles(shown)) == (codes.ERROR, [("unserved run", "sleeps")])
    assert "every build of nap that a live worker serves has diverged from it" in shown["findings"][0]["why"]


async def test_a_lease_that_lapsed_and_a_silent_worker_are_named(cli: Cli, url: str) -> None:
    async with served(url):
        pass
    with rows_of(url) as rows:
        (now,) = rows("select max(updated_at) from run")[0]
        assert isinstance(now, int)
        past = now - _MANY_MS
        rows(
            "update run set status = 'running', owner = 'gone', lease_ms = 30000, renewed_at = ?, expires_at = ?,"
            " wake_at = null where id = 'sleeps'", past, past,
        )  # fmt: skip
        columns = "owner, pid, serves, started_at, seen_at" + ("" if rows.in_file else ", knows")
        marks = "'gone', 77, '{}', ?, ?" + ("" if rows.in_file else ", 1")
        rows(f"insert into worker ({columns}) values ({marks})", past, past)
    code, shown = await examined(cli, url)
    assert (code, troubles(shown)) == (codes.ERROR, [("lapsed lease", "sleeps"), ("silent worker", "gone")])
    whys = {one["trouble"]: one["why"] for one in shown["findings"]}
    assert "nobody took it over: no live worker serves nap" in whys["lapsed lease"]
    assert whys["silent worker"].startswith("pid 77 announced itself")


@pytest.mark.parametrize(
    ("late_ms", "serving", "fault"),
    [
        (0, {}, None),
        (1, {"nap": {"b1"}}, None),
        (25_000, {"nap": {"b1"}}, None),
        (25_001, {"nap": {"b1"}}, "lapsed lease"),
        (1, {"listen": {"b1"}}, "lapsed lease"),
        (1, {"nap": {"b0"}}, "lapsed lease"),
    ],
)
def test_a_takeover_has_some_seconds_where_somebody_can_do_it(
    late_ms: int, serving: dict[str, set[str]], fault: str | None
) -> None:
    row = RunRow(
        DEFAULT_TENANT, RunId("r"), "nap", "1", "running", 1, Head(2, b""), 0, 0, "", RunId("r"), owner=Owner("w"),
        expires_at=1_000_000, lease_ms=30_000,
    )  # fmt: skip
    builds = {agent: frozenset(Served("1", build) for build in found) for agent, found in serving.items()}
    found = explain(Seen(row, False, frozenset({"b0"})), builds, 1_000_000 + late_ms)
    assert (found.fault, found.kind) == (fault, "none" if fault else "lease")


async def test_blobs_that_are_lost_or_needed_by_nothing_are_named(cli: Cli, url: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            rows("update blob set address = ?", bytes(32))
        code, shown = await examined(cli, url)
        assert (code, troubles(shown)) == (codes.ERROR, [("missing blob", "bills"), ("unnamed blob", "00" * 32)])


async def test_a_tenant_can_be_asked_for(cli: Cli, url: str) -> None:
    await app.open(settings(url))
    async with app:
        await app.start(nap, None, id="theirs", tenant="acme")
    assert troubles((await examined(cli, url))[1]) == [("unserved run", "theirs")]
    assert (await examined(cli, url, "--tenant", "other"))[0] == codes.OK
    done = await asyncio.to_thread(cli, "doctor", "--store", url)
    assert done.stdout == "unserved run: theirs of tenant acme: it is ready, and no live worker serves nap\n"


def test_a_file_that_may_lose_commits_is_told_of_and_not_refused(cli: Cli, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db?synchronous=off"
    assert cli("db", "init", "--store", store, "--unsafe-durability").exit_code == codes.OK
    done = cli("doctor", "--store", store)
    assert (done.exit_code, done.stdout.partition(":")[0]) == (codes.ERROR, "unsafe durability")
    assert cli("doctor", "--store", store, "--unsafe-durability").exit_code == codes.OK


def test_a_server_that_may_lose_commits_is_told_of(cli: Cli) -> None:
    with servers.server(fsync="off") as store:
        assert cli("db", "init", "--store", store, "--unsafe-durability").exit_code == codes.OK
        done = cli("doctor", "--store", store)
        assert (done.exit_code, done.stdout.startswith("unsafe durability: fsync")) == (codes.ERROR, True)


@pytest.mark.long
@pytest.mark.skipif(
    _LIBRARY is None and "CI" not in os.environ, reason="libfaketime is not installed (Debian: faketime)"
)
@pytest.mark.parametrize(("hours", "way"), [("+2h", "ahead of"), ("-2h", "behind")])
def test_a_clock_that_is_hours_off_is_told_of(cli: Cli, postgres: str, hours: str, way: str) -> None:
    assert cli("db", "init", "--store", postgres).exit_code == codes.OK
    environment = {
        **os.environ, "LD_PRELOAD": str(_LIBRARY), "FAKETIME": hours, "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "outlive", "doctor", "--store", postgres],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == codes.ERROR, done.stderr
    assert done.stdout.startswith("clock skew: ")
    assert f"s {way} the database's" in done.stdout


async def test_a_live_worker_whose_clock_is_off_is_named(cli: Cli, url: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            assert [abs(off) < 2000 for (off,) in rows("select skew_ms from worker")] == [True], "it was measured"
            ((now,),) = rows("select seen_at from worker")
            columns = "owner, pid, serves, started_at, seen_at, skew_ms" + ("" if rows.in_file else ", knows")
            marks = "?, 77, '{}', ?, ?, ?" + ("" if rows.in_file else ", 1")
            workers = [("hasty", 0, -12_340), ("late", 0, 7_200_000), ("near", 0, 1999), ("new", 0, None)]
            for owner, silent_ms, off in [*workers, ("gone", _MANY_MS, 7_200_000)]:
                rows(f"insert into worker ({columns}) values ({marks})", owner, now, now - silent_ms, off)
        code, shown = await examined(cli, url)
    assert (code, troubles(shown)) == (
        codes.ERROR, [("clock skew", "hasty"), ("clock skew", "late"), ("silent worker", "gone")],
    )  # fmt: skip
    whys = {one["subject"]: one["why"] for one in shown["findings"]}
    assert whys["hasty"] == (
        "pid 77: its machine's clock is 12.3 s ahead of the database's, by which everything here goes"
    )
    assert "7200.0 s behind the database's" in whys["late"]


async def test_a_damaged_row_is_named_and_hides_no_other_run(cli: Cli, url: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            rows("update run set labels = '{' where id = 'listens'")
            rows("update run set status = 'asleep' where id = 'asks'")
            if rows.in_file:
                rows("update run set detail = cast(x'ff41' as text) where id = 'doubts'")
        _, shown = await examined(cli, url)
        whys = {one["subject"]: one["why"] for one in shown["findings"]}
        assert whys["listens"].startswith("its row is damaged: its labels cannot be read")
        assert whys["asks"] == "its status is 'asleep', which is none"
        in_file = url.startswith("sqlite")
        if in_file:
            assert whys["doubts"] == "its row is damaged: what is in detail is no text"
        assert (set(whys), shown["runs"]) == ({"listens", "asks", *(["doubts"] if in_file else [])}, 4)
        done = await asyncio.to_thread(cli, "ps", "--all", "--store", url)
        assert (done.exit_code, len(done.stdout.splitlines())) == (codes.OK, 1 + 5)
        assert "damaged: its labels cannot be read" in done.stdout
        done = await asyncio.to_thread(cli, "show", "listens", "--store", url)
        assert done.exit_code == codes.OK


async def test_runs_are_found_by_label_beside_one_whose_labels_are_damaged(cli: Cli, url: str) -> None:
    async with served(url):
        for number in range(3):
            await app.start(nap, None, id=f"lab-{number}", labels={"team": "a" if number else "b", "of": "x"})
        for damage in ("{", '["team"]'):
            with rows_of(url) as rows:
                rows("update run set labels = ? where id = 'listens'", damage)
            wanted = ("--label", "team=a", "--label", "of=x", "--store", url)
            done = await asyncio.to_thread(cli, "ps", "--json", *wanted)
            assert done.exit_code == codes.OK, done.stderr
            assert [one["id"] for one in json.loads(done.stdout)] == ["lab-2", "lab-1", "listens"]
            done = await asyncio.to_thread(cli, "ps", *wanted)
            assert "damaged: its labels" in done.stdout
            done = await asyncio.to_thread(cli, "ps", "--limit", "1", *wanted)
            assert (done.exit_code, len(done.stdout.splitlines())) == (codes.OK, 1 + 1)
            # Whatever is done to many runs by label is not done to one that may not have it.
            many = ("cancel", "--status", "waiting", "--why", "test", "--dry-run", *wanted)
            done = await asyncio.to_thread(cli, *many)
            assert (done.exit_code, [line.split()[0] for line in done.stdout.splitlines()]) == (
                codes.ERROR, ["lab-2", "lab-1"],
            ), done.stderr  # fmt: skip
            assert "listens  error: left alone: its labels" in done.stderr


async def test_a_duty_that_failed_or_that_nobody_does_is_named(cli: Cli, url: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            rows("insert into duty (name, next_at) values ('chore', 1)")
            code, shown = await examined(cli, url)
            assert (code, troubles(shown)) == (codes.ERROR, [("overdue duty", "chore")])
            assert "no live worker does it; last time: never done" in shown["findings"][0]["why"]
            rows("update duty set next_at = ?, report = 'failed: no space' where name = 'chore'", 2**50)
            _, shown = await examined(cli, url)
            assert [one["why"] for one in shown["findings"]] == ["it failed: no space"]
            rows("delete from duty where name = 'chore'")
    with rows_of(url) as rows:
        rows("update duty set next_at = 1")
    _, shown = await examined(cli, url)
    assert [one for one in shown["findings"] if one["trouble"] == "overdue duty"] == []
