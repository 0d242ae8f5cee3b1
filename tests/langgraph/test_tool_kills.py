"""The process is killed amid parallel tool calls: what is recorded is not done again, nor what is in doubt."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from outlive import Outlive
from outlive.app import operate
from outlive.langgraph import OutliveSaver, ToolNode, one_writer
from outlive.model.ids import DEFAULT_TENANT, RunId
from tests.langgraph import shop
from tests.langgraph.shopper import CALLS, CONFIG
from tests.langgraph.waiting import until

pytestmark = pytest.mark.deaths
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/graphs.db" if request.param == "sqlite" else request.getfixturevalue("postgres")


async def test_what_was_recorded_and_what_is_in_doubt_is_not_done_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shop.LEDGER, str(tmp_path / "ledger"))
    monkeypatch.setenv("OUTLIVE_LEASE", "2s")
    ledger = tmp_path / "ledger"
    await asyncio.to_thread(shop_and_die, url, ledger)
    app = shop.application(url)
    tools: Any = list(app.registry.tools.values())
    node = ToolNode(tools, app=app)
    with OutliveSaver(app, lease=timedelta(seconds=2)) as saver:
        graph = one_writer(shop.graph(saver, node, CALLS), wait=timedelta(seconds=30))
        async with app, app.worker():
            [asked] = (await graph.ainvoke(None, CONFIG))["__interrupt__"]
            assert (asked.value["tool"], asked.value["status"]) == ("ship", "blocked")
            await resolve(app, asked.value["run"])
            state = await graph.ainvoke(Command(resume="?"), CONFIG)
    answers = [one.content for one in state["messages"] if isinstance(one, ToolMessage)]
    assert answers == ["charged anna", "shipped", "charged bert"]
    assert sorted(ledger.read_text().splitlines()) == ["charge anna book 100", "charge bert pen 100", "ship anna"]
    node.close()


def shop_and_die(url: str, ledger: Path) -> None:
    """A process that is killed when all three calls were sent, and two have their record."""
    with subprocess.Popen([sys.executable, "-m", "tests.langgraph.shopper", url], cwd=ROOT) as process:
        until(lambda: ledger.exists() and len(ledger.read_text().split("\n")) == 4, "all sent")
        until(lambda: recorded(url) == 2, "two are recorded")
        process.kill()


def command_line(url: str, *words: str) -> str:
    command = [sys.executable, "-m", "outlive", *words, "--store", url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def recorded(url: str) -> int:
    return command_line(url, "ps", "--all", "--json").count('"succeeded"')


async def resolve(app: Outlive[Any], run: str) -> None:
    [operation] = await app.opened.operations(DEFAULT_TENANT, RunId(run))
    assert operation.status == "unknown"
    await operate.resolve(
        app.opened, app, DEFAULT_TENANT, run, operation.id, "happened", who="maria", why="the carrier says so",
        outcome='"shipped"',
    )  # fmt: skip
