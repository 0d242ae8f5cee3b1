"""Each error of the tree is raised by a test: an error that nothing can raise is a promise that nothing keeps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outlive.model import errors

TESTS = Path(__file__).parent


def leaves() -> list[type[errors.OutliveError]]:
    known = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.OutliveError)]
    return [one for one in known if not one.__subclasses__()]


@pytest.mark.parametrize("error", leaves(), ids=lambda error: error.__name__)
def test_a_test_expects_it(error: type[errors.OutliveError]) -> None:
    """By `pytest.raises`, or by its name in what a run or a command says."""
    expected = re.compile(
        rf"raises\(\(?[^)]*\b{error.__name__}\b|[\"'][^\"'\n]*\b{error.__name__}\b|except {error.__name__}\b"
    )
    found = [path.name for path in TESTS.rglob("*.py") if path != Path(__file__) and expected.search(path.read_text())]
    assert found, f"no test expects {error.__name__}"
