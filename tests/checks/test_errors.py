"""The drawn error tree and the real one are compared name by name and base by base."""

from collections.abc import Callable
from pathlib import Path

from checks import errors

Plant = Callable[[str, str], Path]
PATH = "src/outlive/model/errors.py"
CLASSES = """
class OutliveError(Exception): ...
class StoreError(OutliveError): ...
class Locked(StoreError, OSError): ...
class RunError(OutliveError): ...
class Record: ...
"""
TREE = """
OutliveError
├── StoreError
│   └── Locked      the database is locked: try again
└── RunError

Signals are somewhere else.
"""


def test_equal_trees_have_no_problems(plant: Plant, tmp_path: Path) -> None:
    plant(PATH, f'"""Every error.\n{TREE}"""\n{CLASSES}')
    assert errors.problems(tmp_path) == []


def test_an_error_that_is_not_drawn_is_found(plant: Plant, tmp_path: Path) -> None:
    plant(PATH, f'"""Every error.\n{TREE}"""\n{CLASSES}class Forgotten(RunError): ...\n')
    assert errors.problems(tmp_path) == [f"{PATH} Forgotten is not drawn"]


def test_a_drawing_without_a_class_is_found(plant: Plant, tmp_path: Path) -> None:
    tree = TREE.replace("└── RunError", "├── RunError\n└── Gone")
    plant(PATH, f'"""Every error.\n{tree}"""\n{CLASSES}')
    assert errors.problems(tmp_path) == [f"{PATH} Gone is drawn and does not exist"]


def test_a_wrong_branch_is_found(plant: Plant, tmp_path: Path) -> None:
    tree = TREE.replace("│   └── Locked", "├── Locked")
    plant(PATH, f'"""Every error.\n{tree}"""\n{CLASSES}')
    assert errors.problems(tmp_path) == [f"{PATH} Locked is drawn under OutliveError, its base is StoreError"]


def test_a_missing_drawing_is_found(plant: Plant, tmp_path: Path) -> None:
    plant(PATH, f'"""Every error."""\n{CLASSES}')
    assert len(errors.problems(tmp_path)) == 4
