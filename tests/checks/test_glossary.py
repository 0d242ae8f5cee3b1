"""Words that the glossary replaces are found in identifiers, SQL and prose."""

from collections.abc import Callable
from pathlib import Path

import pytest

from checks import glossary

Plant = Callable[[str, str], Path]
TABLE = """# Glossary

| word | meaning | not |
|---|---|---|
| **queue** | where ready runs wait | `task queue`, `activity` |
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/outlive/app/client.py", "task_queue = 1\n"),
        ("src/outlive/app/client.py", "class TaskQueue: ...\n"),
        ("src/outlive/store/sqlite/queries.sql", "SELECT * FROM task_queues;\n"),
        ("docs/concepts.md", "A Task Queue holds them.\n"),
        ("README.md", "Each task-queue has runs.\n"),
    ],
)
def test_a_replaced_word_is_found_wherever_it_stands(plant: Plant, tmp_path: Path, name: str, text: str) -> None:
    plant("docs/glossary.md", TABLE)
    plant(name, text)
    assert glossary.problems(tmp_path) == [f"{name}:1 'task queue': say 'queue'"]


def test_talking_about_a_word_is_fine(plant: Plant, tmp_path: Path) -> None:
    plant("docs/glossary.md", TABLE)
    plant("docs/concepts.md", 'Others call it a "task queue". Inactivity ends nothing.\n')
    assert glossary.problems(tmp_path) == []


def test_a_glossary_without_its_column_is_found(plant: Plant, tmp_path: Path) -> None:
    assert glossary.problems(tmp_path) == ["docs/glossary.md is missing"]
    plant("docs/glossary.md", "# Glossary\n")
    assert glossary.problems(tmp_path) == ["docs/glossary.md has no table with words not to say"]


def test_the_name_of_a_setting_of_the_database_is_not_ours_to_choose(plant: Plant, tmp_path: Path) -> None:
    plant("docs/glossary.md", TABLE.replace("`activity`", "`session`"))
    plant("src/outlive/store/postgres/queries.sql", "select 'idle_in_transaction_session_timeout';\n")
    assert glossary.problems(tmp_path) == []
