"""Files that are no store of ours: no verb changes them or leaves anything beside them, and each says why."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli
from tests.cli.waiting import Place

READING = (
    ("ps",), ("show", "r1"), ("log", "r1"), ("retry", "r1", "--why", "x"), ("retry", "--blocked", "--why", "x"),
    ("doctor",), ("audit", "verify"),
    ("resolve", "r1", "op-1", "abandon", "--why", "x"),
)  # fmt: skip
MAKING = (("start", "greet", "x"), ("run", "greet", "x"), ("worker",))


def database(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        for statement in statements:
            made.execute(statement)


def beside(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir() if one.name != "__pycache__")


@pytest.mark.parametrize("verb", [*READING, *MAKING], ids=" ".join)
@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (("create table mine(a)",), "it has table mine"),
        (("pragma journal_mode = wal", "create table mine(a)"), "it has table mine"),
        (("create table migration(number)",), "it has table migration"),
        (tuple(f"create table t{n}(a)" for n in range(5)), "it has tables t0, t1, t2 and 2 more"),
    ],
    ids=["one", "wal", "named as ours", "many"],
)
def test_the_database_of_another_program_is_left_alone(
    cli: Cli, tmp_path: Path, verb: tuple[str, ...], statements: tuple[str, ...], says: str
) -> None:
    database(tmp_path / "other.db", *statements)
    before = (tmp_path / "other.db").read_bytes()
    done = cli(*verb, "--store", "sqlite:///other.db")
    assert (done.exit_code, done.stdout) == (codes.ERROR, "")
    assert done.stderr.startswith(f"error: other.db is not a store of outlive ({says})\n")
    assert (tmp_path / "other.db").read_bytes() == before
    assert beside(tmp_path) == ["other.db"]


@pytest.mark.parametrize("verb", READING, ids=" ".join)
@pytest.mark.parametrize("statements", [None, ("pragma user_version = 0", "create table a(b)", "drop table a")])
def test_an_empty_file_stays_empty_for_who_only_reads(
    cli: Cli, tmp_path: Path, verb: tuple[str, ...], statements: tuple[str, ...] | None
) -> None:
    (tmp_path / "other.db").touch()
    database(tmp_path / "other.db", *(statements or ()))
    before = (tmp_path / "other.db").read_bytes()
    done = cli(*verb, "--store", "sqlite:///other.db")
    assert done.exit_code == codes.ERROR
    assert "is empty: the first start makes it" in done.stderr
    assert (tmp_path / "other.db").read_bytes() == before
    assert beside(tmp_path) == ["other.db"]


def test_an_empty_file_becomes_a_store_at_the_first_start(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "outlive.db").touch()
    assert cli("start", "greet", "x", "--id", "r1").stdout == "r1\n"
    assert cli("ps").exit_code == codes.OK


@pytest.mark.parametrize("verb", [*READING, *MAKING], ids=" ".join)
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("text.db", "error: text.db is not a store of outlive (it is no SQLite database)\n"),
        ("/dev/null", "error: /dev/null is not a store of outlive (it is no ordinary file)\n"),
    ],
)
def test_what_is_no_database_is_left_alone(
    cli: Cli, tmp_path: Path, verb: tuple[str, ...], path: str, says: str
) -> None:
    (tmp_path / "text.db").write_text("no database at all\n" * 100, "utf-8")
    devices = {one.name for one in Path("/dev").iterdir()}
    done = cli(*verb, "--store", f"sqlite:///{path}")
    assert (done.exit_code, done.stdout) == (codes.ERROR, "")
    assert done.stderr.startswith(says)
    assert beside(tmp_path) == ["text.db"]
    assert {one.name for one in Path("/dev").iterdir() if one.name.startswith("null")} <= devices


@pytest.mark.parametrize("verb", READING[:3], ids=" ".join)
def test_reading_does_not_bring_a_schema_up_to_date(
    cli: Cli, tmp_path: Path, verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("start", "greet", "x", "--id", "r1")
    newest = "insert into migration (number, name, sha256, applied_at) values (0, 'old', 'x', 0)"
    database(tmp_path / "outlive.db", newest, "delete from migration where number > 0")
    done = cli(*verb)
    assert done.exit_code == codes.ERROR
    assert "older release" in done.stderr
    with closing(sqlite3.connect(tmp_path / "outlive.db")) as opened:
        assert opened.execute("select number from migration").fetchall() == [(0,)]


@contextmanager
def closed(folder: Path) -> Iterator[Path]:
    """A directory with a file system of its own, which takes the right to mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_directory_that_cannot_be_written_to(place: Place) -> None:
    with closed(place.path / "closed") as folder:
        ours, fresh = (f"sqlite:///{folder}/{name}.db" for name in ("ours", "fresh"))
        assert place.done("start", "greet", "x", "--id", "r1", "--store", ours)[0] == codes.OK
        with closing(sqlite3.connect(folder / "ours.db")) as last:
            # Where a process left its shared memory file behind, reading would need no right to write.
            assert last.execute("pragma wal_checkpoint(truncate)").fetchone()[0] == 0
        assert not (folder / "ours.db-shm").exists()
        # Root may write where no permission says so; on a file system that is read-only nobody may.
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        for verb, store in ((("ps",), ours), (("start", "greet", "y"), ours), (("start", "greet", "y"), fresh)):
            code, shown = place.done(*verb, "--store", store)
            assert code == codes.ERROR, shown
            assert f"needs write access to {folder} for its lock files" in "\n".join(shown)
