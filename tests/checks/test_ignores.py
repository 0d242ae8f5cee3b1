"""A checker is silenced with code and reason, outside the core."""

from collections.abc import Callable
from pathlib import Path

import pytest

from checks import ignores

Plant = Callable[[str, str], Path]


@pytest.mark.parametrize(
    "comment",
    ["# noqa", "# noqa: E501", "# NOQA:E501,B008", "# type: ignore", "# type: ignore[arg-type]", "# pyright: ignore"],
)
def test_silence_without_a_reason_is_refused(plant: Plant, tmp_path: Path, comment: str) -> None:
    plant("src/outlive/cli/run.py", f"x = 1  {comment}\n")
    assert len(ignores.problems(tmp_path)) == 1


@pytest.mark.parametrize(
    "comment", ["# noqa: BLE001 - user code may raise anything", "# type: ignore[misc] - stub is wrong"]
)
def test_silence_with_code_and_reason_passes(plant: Plant, tmp_path: Path, comment: str) -> None:
    plant("src/outlive/cli/run.py", f"x = 1  {comment}\n")
    assert ignores.problems(tmp_path) == []


def test_the_core_has_no_type_ignore_at_all(plant: Plant, tmp_path: Path) -> None:
    plant("src/outlive/store/port.py", "x = 1  # type: ignore[misc] - a good reason\n")
    assert ignores.problems(tmp_path) == [
        "src/outlive/store/port.py:1 silences a type checker in the core: mend the types"
    ]


def test_a_string_that_looks_like_silence_is_none(plant: Plant, tmp_path: Path) -> None:
    plant("tests/test_x.py", 'x = "# noqa"\n')
    assert ignores.problems(tmp_path) == []
