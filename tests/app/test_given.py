"""Texts, numbers and times that nothing could store or show: refused where they are given, and by name."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from outlive import Agent, Outlive, Run
from outlive.app import mail, operate
from outlive.app.settings import Settings
from outlive.cli import codes, screen
from outlive.duty.bundle import Bundle
from outlive.errors import BadArguments, BadBundle, NotSerialisable
from tests.cli.conftest import Cli, cli

__all__ = ["cli"]

app: Outlive[None] = Outlive()
HALF, NUL = "a\ud800b", "a\0b"
FAR = timedelta(days=36_501)
DEEP = "[" * 100_000 + "]" * 100_000


@app.agent()
async def idle(run: Run[None], what: object) -> None:
    pass


@app.agent()
async def counting(run: Run[None], what: int) -> None:
    pass


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'runs.db'}"
    return str(request.getfixturevalue("postgres"))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Outlive[None]]:
    await app.open(Settings.load(store=url))
    try:
        yield app
    finally:
        await app.close()


BAD: list[tuple[str, dict[str, Any]]] = [
    ("principal", {"principal": HALF}),
    ("purpose", {"purpose": NUL}),
    ("identity", {"identity": HALF}),
    ("label", {"labels": {HALF: "x"}}),
    ("label k", {"labels": {"k": NUL}}),
    ("label k", {"labels": {"k": HALF}}),
    ("priority", {"priority": 2**63}),
    ("priority", {"priority": -(2**70)}),
    ("deadline", {"deadline": FAR}),
    ("deadline", {"deadline": -FAR}),
    ("deadline", {"deadline": timedelta.max}),
]


async def test_a_run_that_could_not_be_stored_or_shown_is_not_started(url: str) -> None:
    async with opened(url) as there:
        for what, given in BAD:
            with pytest.raises(BadArguments, match=f"^start: the {what} "):
                await there.start(idle, None, id="r", **given)
        rows, _ = await operate.listed(there.opened, "default")
        assert rows == []
        await there.start(idle, None, id="r", priority=2**63 - 1, deadline=timedelta(days=36_500))
        [row], _ = await operate.listed(there.opened, "default")
        assert row.priority == 2**63 - 1
        assert screen.local(row.deadline_at)


async def test_what_no_run_can_be_called_is_not_asked_of_a_database(url: str) -> None:
    async with opened(url) as there:
        for text in (HALF, NUL):
            with pytest.raises(BadArguments, match="the id"):
                there.handle(idle, text)
            with pytest.raises(BadArguments, match="the tenant"):
                there.handle(idle, "r", tenant=text)
            for which in ({"agent": text}, {"reason": text}, {"labels": {text: "x"}}, {"labels": {"x": text}}):
                with pytest.raises(BadArguments, match="^the filter: the (agent|reason|label)"):
                    await operate.listed(there.opened, "default", **which)
                with pytest.raises(BadArguments, match="^the filter: the (agent|reason|label)"):
                    await operate.filtered(there.opened, **which)


def test_json_that_is_too_deep_is_refused_as_what_is_no_json() -> None:
    with pytest.raises(BadArguments, match="it is not JSON"):
        mail.check_json(DEEP, "the message")
    # Here it is a word, which an agent that takes a number does not take.
    with pytest.raises(BadArguments, match="the input is not JSON"):
        operate.read_input(cast(Agent[object, object], counting), DEEP)
    with pytest.raises(BadBundle, match="it is no JSON"):
        Bundle([DEEP.encode()])
    assert screen.value_of(DEEP) == DEEP
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotSerialisable):
        mail.written(deep, "the message")


def test_a_time_that_no_calendar_has_is_shown_as_it_is() -> None:
    for at in (10**17, -(10**17), 2**63 - 1):
        assert screen.local(at) == screen.iso(at) == f"{at} ms"
    assert screen.iso(0) is None


def test_bytes_that_are_no_text_are_refused_on_the_command_line(cli: Cli) -> None:
    byte = "\udcff"
    assert cli("start", "buy", "5", "--id", "r1").exit_code == 0
    for arguments in (
        ("ps", "--label", f"k={byte}"), ("start", "buy", "5", "--label", f"k={byte}"),
        ("start", "buy", "5", "--principal", byte), ("start", "buy", "5", "--purpose", byte),
        ("retry", "--reason", byte), ("send", "r1", "t", "[" * 20_000, "--key", "k"),
    ):  # fmt: skip
        said = cli(*arguments)
        assert said.exit_code in (codes.ERROR, codes.USAGE)
        assert "Error:" not in said.stderr, said.stderr  # the name of an exception is no message
    assert [one["id"] for one in json.loads(cli("ps", "--json").stdout)] == ["r1"]
