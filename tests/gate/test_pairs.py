"""For every case of the corpus: what the live system does with the run is what the case says, on both stores."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlive.testing.ground import File, Ground
from outlive.testing.schemas import Schemas
from outlive.testing.world import quiet_about_the_dead
from tests.gate.cases import CASES
from tests.gate.play import play, surprises

_PARTS = 8


@asynccontextmanager
async def grounds(store: str, directory: Path) -> AsyncIterator[Callable[[], Ground]]:
    """Empty stores, one after another."""
    if store == "sqlite":
        numbers = itertools.count()
        yield lambda: File(directory / f"{next(numbers)}.db")
        return
    schemas = Schemas(store)
    try:
        yield schemas.take
    finally:
        await schemas.drop()


def test_no_two_cases_have_one_name() -> None:
    names = [case.name for case in CASES]
    assert [name for name in names if names.count(name) > 1] == []


# In parts: a store for each case would take longer than the case does, and a test for all would say little.
@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_what_becomes_of_runs_is_what_the_cases_say(
    store: str, part: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    quiet_about_the_dead(asyncio.get_running_loop())
    url = "sqlite" if store == "sqlite" else f"{request.getfixturevalue('postgres_server')}&direct=yes"
    wrong, mended = [], []
    async with grounds(url, tmp_path) as take:
        for case in CASES[part::_PARTS]:
            lived = await play(case, take, tmp_path)
            found = surprises(case, lived)
            if case.wrong and not found:
                mended.append(case.name)
            elif found and not case.wrong:
                wrong.append("\n".join([case.name, *found, *lived.log]))
    assert not wrong, "\n\n".join(wrong)
    assert not mended, f"these are right now; take out what is said to be wrong: {mended}"
