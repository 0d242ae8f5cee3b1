"""`outlive db` on both stores; and that verbs which only read make and upgrade nothing on a server either."""

from __future__ import annotations

import inspect
import itertools
import json
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outlive.cli import codes
from outlive.store import postgres, sqlite
from outlive.store.postgres import migrate as postgres_migrate
from outlive.store.postgres import upkeep as postgres_upkeep
from outlive.store.postgres.connection import place_of
from outlive.store.sqlite import migrate as sqlite_migrate
from outlive.store.sqlite import store as sqlite_store
from outlive.store.sqlite import upkeep as sqlite_upkeep
from outlive.store.upkeep import migrations
from tests.cli.conftest import ROOT, Cli
from tests.cli.test_foreign import MAKING, READING
from tests.cli.waiting import Place
from tests.store.postgres_server import server
from tests.store.releases import FIRST, release

_NUMBERS = itertools.count(1)
NewRelease = Callable[[], None]


@pytest.fixture(scope="module")
def a_server() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture
def schema(a_server: str) -> Iterator[str]:
    """A URL with a schema that is not there yet."""
    name = f"outlive_cli_{next(_NUMBERS)}"
    yield f"{a_server}&schema={name}"
    with psycopg.connect(a_server, autocommit=True) as connection:
        connection.execute(f"drop schema if exists {name} cascade".encode())


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    """A URL of a database where nothing is yet."""
    if request.param == "sqlite":
        return "sqlite:///outlive.db"
    found: str = request.getfixturevalue("schema")
    return found


@pytest.fixture
def new_release(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> NewRelease:
    """From the call on, this process is a release with later migrations; others are what they were."""
    path = tmp_path_factory.mktemp("releases")
    pre = "alter table {schema}.run add column mood text default 'calm';"
    post = "alter table {schema}.run alter column mood set not null;"
    on_server = migrations(release(path / "postgres", FIRST[postgres], pre_0002=pre, post_0002=post))
    in_file = migrations(release(path / "sqlite", FIRST[sqlite], whole_0002="alter table run add column mood text;"))

    def become() -> None:
        for module in (postgres_migrate, postgres_upkeep):
            monkeypatch.setattr(module, "migrations", lambda: on_server)
        for place in (sqlite_migrate, sqlite_upkeep, sqlite_store):
            monkeypatch.setattr(place, "migrations", lambda: in_file)

    return become


def tables(url: str) -> list[str]:
    """What is in the schema, or None of it."""
    query = (
        "select nspname || '.' || coalesce(relname, '') from pg_namespace left join pg_class on relnamespace = "
        "pg_namespace.oid and relkind = 'r' where nspname = %s order by 1"
    )
    with psycopg.connect(place_of(url).conninfo) as connection:
        return [row[0] for row in connection.execute(query, (place_of(url).schema,))]


def test_init_makes_a_store_once(cli: Cli, store: str) -> None:
    first, again = cli("db", "init", "--store", store), cli("db", "init", "--store", store)
    assert (first.exit_code, again.exit_code) == (codes.OK, codes.OK)
    assert first.stdout.splitlines()[0].startswith("applied 0001_runs_and_logs.")
    assert first.stdout.splitlines()[1].endswith(", version 1")
    assert first.stdout.splitlines()[1].startswith(f"made {store.partition(':')[0]}:")
    assert again.stdout.startswith("nothing to do: ")
    assert cli("ps", "--store", store).stderr == "no runs\n"


def test_init_and_upgrade_leave_what_is_not_theirs_to_the_other(cli: Cli, store: str, new_release: NewRelease) -> None:
    done = cli("db", "upgrade", "--store", store)
    assert done.exit_code == codes.ERROR
    assert "there is no store yet; the first start makes it, or `outlive db init`" in done.stderr
    cli("db", "init", "--store", store)
    new_release()
    done = cli("db", "init", "--store", store)
    assert done.exit_code == codes.ERROR
    assert "an older release made it" in done.stderr
    assert "`outlive db upgrade`" in done.stderr


def test_upgrade_tells_of_each_file_and_of_what_is_left(cli: Cli, schema: str, new_release: NewRelease) -> None:
    cli("db", "init", "--store", schema)
    assert cli("db", "upgrade", "--store", schema).stdout.startswith("nothing to do: ")
    new_release()
    done = cli("db", "upgrade", "--store", schema)
    assert (done.exit_code, done.stdout) == (codes.OK, "applied 0002_later.pre.sql\n")
    assert "applying 0002_later.pre.sql\n" in done.stderr
    assert "left for later" in done.stderr
    assert f"outlive db upgrade --finish --store '{schema}'" in done.stderr
    done = cli("db", "upgrade", "--finish", "--store", schema)
    assert (done.exit_code, done.stdout) == (codes.OK, "applied 0002_later.post.sql\n")
    done = cli("db", "upgrade", "--finish", "--store", schema)
    assert (done.exit_code, done.stdout.partition(":")[0]) == (codes.OK, "nothing to do")


def test_upgrade_of_a_file_is_one_step(cli: Cli, new_release: NewRelease) -> None:
    cli("db", "init")
    new_release()
    done = cli("db", "upgrade")
    assert (done.exit_code, done.stdout) == (codes.OK, "applied 0002_later.sql\n")
    assert "left" not in done.stderr
    assert cli("db", "upgrade", "--finish").stdout == "nothing to do: sqlite:///outlive.db has version 2\n"


def test_an_old_worker_goes_on_until_the_upgrade_is_finished(
    cli: Cli, place: Place, schema: str, new_release: NewRelease
) -> None:
    place.env["OUTLIVE_STORE"] = schema
    old = place.outlive("worker")
    old.line("serves")
    new_release()
    assert cli("db", "upgrade", "--store", schema).stdout == "applied 0002_later.pre.sql\n"
    assert cli("start", "greet", "ada", "--id", "r1", "--store", schema).exit_code == codes.OK
    done = cli("run", "greet", "ada", "--id", "r1", "--store", schema)
    assert (done.exit_code, done.stdout) == (codes.OK, '"hello ADA"\n')
    assert place.done("start", "wait", "bo", "--id", "r2") == (codes.OK, ["r2"])
    old.line("at the gate")
    done = cli("db", "upgrade", "--finish", "--store", schema)
    assert (done.exit_code, done.stdout) == (codes.AGAIN, "")
    assert f"(pid {old.pid}, seen " in done.stderr
    assert f"(pid {old.pid}, seen " in cli("db", "check", "--store", schema).stdout
    place.open_gate()
    code, said = place.done("run", "wait", "--id", "r2")
    assert (code, '"BObo"' in said) == (codes.OK, True)
    old.send(signal.SIGTERM)
    assert old.code() == codes.OK
    assert cli("db", "upgrade", "--finish", "--store", schema).stdout == "applied 0002_later.post.sql\n"
    code, said = place.done("start", "greet", "x")
    assert code == codes.ERROR
    assert "has schema 2, this release knows up to 1; upgrade outlive" in said[0]
    assert cli("run", "greet", "bo", "--store", schema).stdout == '"hello BO"\n'


def checked(cli: Cli, store: str, *more: str) -> tuple[int, dict[str, Any]]:
    done = cli("db", "check", "--json", "--store", store, *more)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["usable"] == (done.exit_code == codes.OK)
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == [
        f"error: {one}" for one in found["problems"]
    ]
    return done.exit_code, found


def test_check_follows_a_store_from_nothing_to_the_last_file(cli: Cli, store: str, new_release: NewRelease) -> None:
    code, found = checked(cli, store)
    assert (code, found["version"], found["known"], found["applied"]) == (codes.ERROR, None, 1, [])
    assert (found["reachable"], len(found["pending"])) == (True, 1)
    cli("db", "init", "--store", store)
    code, found = checked(cli, store)
    assert (code, found["version"], found["pending"], found["problems"]) == (codes.OK, 1, [], [])
    new_release()
    code, found = checked(cli, store)
    assert (code, found["version"], found["known"], len(found["pending"])) == (codes.ERROR, 1, 2, 1)
    assert "an older release made it" in str(found["problems"])
    cli("db", "upgrade", "--store", store)
    code, found = checked(cli, store)
    # What an upgrade has left for later is no fault.
    left = ["0002_later.post.sql"] if store.startswith("postgres") else []
    assert (code, found["version"], found["to_finish"]) == (codes.OK, 2, left)
    cli("db", "upgrade", "--finish", "--store", store)
    assert checked(cli, store)[1]["to_finish"] == []


def test_check_by_an_older_release(cli: Cli, store: str, place: Place, new_release: NewRelease) -> None:
    cli("db", "init", "--store", store)
    new_release()
    cli("db", "upgrade", "--finish", "--store", store)
    code, said = place.done("db", "check", "--store", store)
    assert code == codes.ERROR
    assert any("has schema 2, this release knows up to 1; upgrade outlive" in line for line in said)
    assert "usable:      no" in said


def test_check_tells_people_the_same(cli: Cli, store: str) -> None:
    cli("db", "init", "--store", store)
    shown = cli("db", "check", "--store", store).stdout
    assert "server:      SQLite 3." in shown or "server:      PostgreSQL 1" in shown
    assert "schema:      version 1; this release knows up to version 1\n" in shown
    assert "durability:  keeps what it acknowledges\nusable:      yes\n" in shown


def test_check_changes_nothing(cli: Cli, tmp_path: Path, schema: str) -> None:
    assert cli("db", "check").exit_code == codes.ERROR
    assert [one.name for one in tmp_path.iterdir()] == []
    assert cli("db", "check", "--store", schema).exit_code == codes.ERROR
    assert tables(schema) == []


def test_check_of_what_cannot_be_reached(cli: Cli, tmp_path: Path) -> None:
    for url in (f"postgresql://ada:hush@/d?host={tmp_path}", "sqlite:///nowhere/x.db"):
        code, found = checked(cli, url)
        assert (code, found["reachable"], found["server"]) == (codes.ERROR, False, None)
        assert "cannot be used: " in str(found["problems"])
        assert "hush" not in str(found)
    assert cli("db", "check", "--store", "mysql://x/y").exit_code == codes.USAGE


def test_a_database_that_may_lose_commits(cli: Cli, schema: str) -> None:
    for url in (f"{schema}&options=-csynchronous_commit%3Doff", "sqlite:///x.db?synchronous=off"):
        assert cli("db", "init", "--store", url, "--unsafe-durability").exit_code == codes.OK
        code, found = checked(cli, url)
        assert (code, len(found["unsafe"])) == (codes.ERROR, 1)
        assert "may lose acknowledged commits" in found["problems"][0]
        assert checked(cli, url, "--unsafe-durability")[0] == codes.OK
        for verb in ("init", "upgrade"):
            done = cli("db", verb, "--store", url)
            assert (done.exit_code, "--unsafe-durability" in done.stderr) == (codes.ERROR, True)


def test_replicas_that_may_lack_acknowledged_commits_are_warned_of(cli: Cli, schema: str) -> None:
    assert cli("db", "init", "--store", schema).exit_code == codes.OK
    assert checked(cli, schema)[1]["warnings"] == []
    # Any process that may read the log of the server counts as one that follows it.
    with psycopg.connect(place_of(schema).conninfo, replication="database"):
        code, found = checked(cli, schema)
        [warning] = found["warnings"]
        assert (code, found["unsafe"]) == (codes.OK, [])
        assert warning == "synchronous_standby_names is empty: a failover to the 1 that follow may lose commits"
        assert f"\nwarning:     {warning}\n" in cli("db", "check", "--store", schema).stdout
        assert f"unsafe durability: {warning}: " in cli("doctor", "--store", schema).stdout


@pytest.mark.parametrize("verb", ["init", "upgrade", "check"])
def test_what_belongs_to_another_program_is_refused(cli: Cli, tmp_path: Path, schema: str, verb: str) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("create table mine (a)")
    before = (tmp_path / "other.db").read_bytes()
    name = place_of(schema).schema
    with psycopg.connect(place_of(schema).conninfo, autocommit=True) as connection:
        connection.execute(f"create schema {name}; create table {name}.mine (a text)".encode())
    for url, says in (("sqlite:///other.db", "it has table mine"), (schema, f"schema {name} has table mine")):
        done = cli("db", verb, "--store", url)
        assert done.exit_code == codes.ERROR
        assert f"is not a store of outlive ({says})" in done.stderr
    assert (tmp_path / "other.db").read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["other.db"]
    assert tables(schema) == [f"{name}.mine"]


@pytest.mark.parametrize("verb", READING, ids=" ".join)
def test_who_only_reads_makes_and_upgrades_nothing_on_a_server(
    cli: Cli, schema: str, new_release: NewRelease, verb: tuple[str, ...]
) -> None:
    done = cli(*verb, "--store", schema)
    assert (done.exit_code, done.stdout) == (codes.ERROR, "")
    assert "there is no store in schema outlive_cli_" in done.stderr
    assert tables(schema) == []
    cli("db", "init", "--store", schema)
    before = tables(schema)
    new_release()
    done = cli(*verb, "--store", schema)
    assert (done.exit_code, done.stdout) == (codes.ERROR, "")
    assert "an older release made it; the next start, run or worker brings it up to date" in done.stderr
    assert tables(schema) == before


@pytest.mark.parametrize("verb", MAKING[:2], ids=" ".join)
def test_who_starts_a_run_makes_and_upgrades_what_is_missing(
    cli: Cli, store: str, new_release: NewRelease, verb: tuple[str, ...]
) -> None:
    assert cli(*verb, "--store", store).exit_code == codes.OK
    new_release()
    assert checked(cli, store)[1]["version"] == 1
    assert cli(*verb, "--store", store).exit_code == codes.OK
    assert (checked(cli, store)[0], checked(cli, store)[1]["version"]) == (codes.OK, 2)


def test_the_page_has_the_figures_of_the_code() -> None:
    page = " ".join((ROOT / "docs" / "cli.md").read_text("utf-8").split())
    wait = inspect.signature(postgres_upkeep.PostgresUpkeep).parameters["wait"].default
    assert f"a sign of life within {postgres_migrate._ALIVE_MS // 60_000} min" in page
    assert f"another waits {wait:g} s for it" in page
    assert f"a file waits {postgres_migrate._TABLE_MS // 1000} s for a table" in page
