"""A tree made of samples, for one check to look at."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def plant(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a sample file into the tree at `tmp_path`."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    return write
