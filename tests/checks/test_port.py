"""A port that grows, or whose contract is not written, is found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from checks import port

Plant = Callable[[str, str], Path]


def protocol(methods: int, docstring: str = '"""What it does."""', base: str = "Protocol") -> str:
    body = "".join(f"    async def method_{n}(self) -> None:\n        {docstring}\n" for n in range(methods))
    return f'class Log({base}):\n    """The log."""\n\n    def _private(self) -> None: ...\n{body}'


@pytest.mark.parametrize("base", ["Protocol", "Protocol[D]", "typing.Protocol"])
def test_a_port_has_at_most_fifteen_methods(plant: Plant, tmp_path: Path, base: str) -> None:
    plant("src/outlive/store/port.py", protocol(15, base=base))
    assert port.problems(tmp_path) == []
    plant("src/outlive/store/port.py", protocol(16, base=base))
    assert port.problems(tmp_path) == ["src/outlive/store/port.py:1 Log has 16 public methods, 15 at most"]


def test_each_method_states_its_contract(plant: Plant, tmp_path: Path) -> None:
    plant("src/outlive/store/port.py", protocol(1, docstring="..."))
    assert port.problems(tmp_path) == ["src/outlive/store/port.py:1 Log.method_0 has no docstring"]


def test_a_protocol_says_what_it_is(plant: Plant, tmp_path: Path) -> None:
    plant("src/outlive/store/port.py", "class Log(Protocol):\n    pass\n")
    assert port.problems(tmp_path) == ["src/outlive/store/port.py:1 Log has no docstring"]
