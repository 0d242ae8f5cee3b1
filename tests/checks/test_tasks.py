"""Bare tasks are found outside the engine, however asyncio was imported."""

from collections.abc import Callable
from pathlib import Path

import pytest

from checks import tasks

Plant = Callable[[str, str], Path]


@pytest.mark.parametrize(
    "line", ["asyncio.create_task(f())", "await asyncio.gather(f())", "from asyncio import gather as g"]
)
def test_a_bare_task_is_found(plant: Plant, tmp_path: Path, line: str) -> None:
    source = f"import asyncio\nasync def f() -> None:\n    {line}\n"
    plant("src/outlive/app/client.py", source)
    plant("src/outlive/engine/run.py", source)
    plant("src/outlive/store/postgres/tasks.py", source)
    (found,) = tasks.problems(tmp_path)
    assert found.startswith("src/outlive/app/client.py:3 asyncio.")


def test_a_task_group_is_fine(plant: Plant, tmp_path: Path) -> None:
    plant("src/outlive/app/client.py", "async def f(group):\n    group.create_task(f(group))\n")
    assert tasks.problems(tmp_path) == []
