"""The size budgets refuse what is over them, and only that."""

from collections.abc import Callable
from pathlib import Path

from checks import sizes

Plant = Callable[[str, str], Path]
SURFACE = "src/outlive/__init__.py"


def function(name: str, lines: int) -> str:
    return f"def {name}() -> None:\n" + "    pass\n" * (lines - 1)


def test_a_tree_within_budget_has_no_problems(plant: Plant, tmp_path: Path) -> None:
    plant(SURFACE, "__all__ = ['Run']\n")
    plant("src/outlive/run.py", function("short", 50))
    plant("tests/test_run.py", function("longest_allowed", 100))
    assert sizes.problems(tmp_path) == []


def test_a_long_function_is_named(plant: Plant, tmp_path: Path) -> None:
    plant(SURFACE, "__all__ = []\n")
    plant("tests/test_run.py", function("sprawl", 101))
    assert sizes.problems(tmp_path) == ["tests/test_run.py:1 sprawl has 101 lines, 100 at most"]


def test_many_middling_functions_are_too_many(plant: Plant, tmp_path: Path) -> None:
    plant(SURFACE, "__all__ = []\n")
    for n in range(20):
        plant(f"src/outlive/m{n}.py", function("f", 51 if n < 2 else 5))
    assert sizes.problems(tmp_path) == ["src: 95 in 100 functions have up to 51 lines, 50 at most"]


def test_a_long_file_needs_a_reason(plant: Plant, tmp_path: Path) -> None:
    plant(SURFACE, "__all__ = []\n")
    plant("src/outlive/long.py", "x = 1\n" * 501)
    assert sizes.problems(tmp_path) == ["src/outlive/long.py has 501 lines, 500 at most"]
    plant("checks/long_files.txt", "src/outlive/long.py:\n")
    assert sizes.problems(tmp_path) == ["checks/long_files.txt: no reason is given for src/outlive/long.py"]
    plant("checks/long_files.txt", "src/outlive/long.py: one table that is read top to bottom\n")
    assert sizes.problems(tmp_path) == []


def test_an_excuse_that_is_not_needed_is_named(plant: Plant, tmp_path: Path) -> None:
    plant(SURFACE, "__all__ = []\n")
    plant("checks/long_files.txt", "src/outlive/gone.py: it was long once\n")
    assert sizes.problems(tmp_path) == ["checks/long_files.txt: src/outlive/gone.py is not long"]


def test_the_surface_has_at_most_twelve_names(plant: Plant, tmp_path: Path) -> None:
    plant(SURFACE, f"__all__ = {[f'N{n}' for n in range(13)]}\n")
    assert sizes.problems(tmp_path) == [f"{SURFACE} exports 13 names, 12 at most"]
    plant(SURFACE, "from outlive.app import *\n")
    assert sizes.problems(tmp_path) == [f"{SURFACE} must list its names in __all__, as literals"]
