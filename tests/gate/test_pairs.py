"""For every case of the corpus: the gate says what the case says, and the live system does what the gate has said.

All of them on SQLite, and every third on PostgreSQL too, but for runs that are imported: they bring the key of their
tenant with them, and a schema that worlds share has one.
"""

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
from tests.gate import page
from tests.gate.cases import CASES
from tests.gate.play import play

_PARTS = 10


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


def test_the_page_is_what_the_cases_say() -> None:
    assert page.PAGE.read_text("utf-8") == page.text(), "run: python -m tests.gate report"


# In parts: one test for each case would be slower than the case is, and one for all would say little.
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("part", range(_PARTS))
async def test_the_gate_says_what_the_live_system_then_does(
    store: str, part: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    quiet_about_the_dead(asyncio.get_running_loop())
    if store == "sqlite":
        url, cases = store, CASES[part::_PARTS]
    else:
        url = f"{request.getfixturevalue('postgres_server')}&direct=yes"
        cases = [case for case in CASES if not case.stand.recorded][part :: 3 * _PARTS]
    wrong, mended = [], []
    async with grounds(url, tmp_path) as take:
        for case in cases:
            played = await play(case, take, tmp_path)
            found = played.wrong()
            if case.expected.wrong and not found:
                mended.append(case.name)
            elif found and not case.expected.wrong:
                wrong.append("\n".join([played.told(), *found, *played.lived.log]))
    assert not wrong, "\n\n".join(wrong)
    assert not mended, f"these are right now; take out what is said to be wrong: {mended}"
