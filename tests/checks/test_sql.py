"""Statements without a name, a purpose or a twin, and migrations that were edited, are found."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from checks import sql

Plant = Callable[[str, str], Path]
STORE = "src/outlive/store/sqlite"
GOOD = """-- The statements of this store.

-- name: find_run
-- One run; a semicolon in a comment or a string; is not the end.
SELECT id FROM runs WHERE id = :id AND note <> 'a;b';
"""


def test_a_good_file_has_no_problems(plant: Plant, tmp_path: Path) -> None:
    plant(f"{STORE}/queries.sql", GOOD)
    assert sql.problems(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT 1;\n", "1 a statement without a name"),
        ("-- name: a\nSELECT 1;\n", "1 a does not say what it is for in the line after its name"),
        ("-- name: a\n-- Why.\nSELECT 1\n", "1 a is not one statement ended by a semicolon"),
        ("-- name: a\n-- Why.\nSELECT 1; SELECT 2;\n", "1 a is not one statement ended by a semicolon"),
        ("-- name: A b\n-- Why.\nSELECT 1;\n", "1 'A b' is not a name: lower case and underscores"),
        (GOOD + GOOD, "8 find_run is there twice"),
    ],
)
def test_a_bad_statement_is_found(plant: Plant, tmp_path: Path, text: str, problem: str) -> None:
    plant(f"{STORE}/queries.sql", text)
    assert sql.problems(tmp_path) == [f"{STORE}/queries.sql:{problem}"]


def test_stores_have_the_same_statements(plant: Plant, tmp_path: Path) -> None:
    plant(f"{STORE}/queries.sql", GOOD)
    plant("src/outlive/store/other/queries.sql", GOOD.replace("find_run", "find_log"))
    assert sql.problems(tmp_path) == [
        "src/outlive/store/other/queries.sql has no statement find_run",
        f"{STORE}/queries.sql has no statement find_log",
    ]


def migration(plant: Plant, name: str, text: str) -> str:
    plant(f"{STORE}/migrations/{name}", text)
    return f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n"


def test_recorded_migrations_have_no_problems(plant: Plant, tmp_path: Path) -> None:
    lines = [migration(plant, "0001_first.sql", "a"), migration(plant, "0002_second.sql", "b")]
    plant(f"{STORE}/migrations/hashes.txt", "".join(lines))
    assert sql.problems(tmp_path) == []


def test_an_edited_migration_is_found(plant: Plant, tmp_path: Path) -> None:
    plant(f"{STORE}/migrations/hashes.txt", migration(plant, "0001_first.sql", "a"))
    plant(f"{STORE}/migrations/0001_first.sql", "edited")
    (found,) = sql.problems(tmp_path)
    assert found == f"{STORE}/migrations/0001_first.sql was changed after it was recorded: add a new migration instead"


def test_an_unrecorded_a_lost_and_a_misnumbered_migration_are_found(plant: Plant, tmp_path: Path) -> None:
    migration(plant, "0002_second.sql", "b")
    plant(f"{STORE}/migrations/hashes.txt", "0" * 64 + "  0001_first.sql\n")
    assert sql.problems(tmp_path) == [
        f"{STORE}/migrations/0002_second.sql is not in hashes.txt",
        f"{STORE}/migrations/0001_first.sql is in hashes.txt and does not exist",
        f"{STORE}/migrations/0002_second.sql should be 0001_what_it_does.sql",
    ]


def test_a_migration_may_come_in_two_stages_of_one_number(plant: Plant, tmp_path: Path) -> None:
    names = ["0001_first.pre.sql", "0002_second.post.sql", "0002_second.pre.sql", "0003_third.pre.sql"]
    plant(f"{STORE}/migrations/hashes.txt", "".join([migration(plant, name, name) for name in names]))
    assert sql.problems(tmp_path) == []


def test_a_second_stage_without_a_first_is_found(plant: Plant, tmp_path: Path) -> None:
    names = ["0001_first.pre.sql", "0001_other.post.sql"]
    plant(f"{STORE}/migrations/hashes.txt", "".join([migration(plant, name, name) for name in names]))
    assert sql.problems(tmp_path) == [f"{STORE}/migrations/0001_other.post.sql has no 0001_other.pre.sql"]
