"""The synchronous verbs: the same signatures, and the same runs."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import outlive
from outlive import Outlive, Run, sync
from outlive.app.sync import _Serving
from outlive.errors import Refused, StoreUnavailable, TimedOut, UnknownRun
from outlive.model.clock import SystemClock
from outlive.store.postgres.connection import place_of

ROOT = Path(__file__).parents[2]
app: Outlive[None] = Outlive()


@app.agent()
async def greets(run: Run[None], name: str) -> str:
    return f"{await run.receive('greetings', str)}, {name}"


@pytest.fixture(params=["sqlite", "postgres"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Client]:
    postgres = request.param == "postgres"
    app._url = str(request.getfixturevalue("postgres")) if postgres else f"sqlite:///{tmp_path / 'runs.db'}"
    with sync.Client(app) as made:
        yield made


async def work(id: str) -> None:
    """What a worker process would do, until the run has ended."""
    async with app, app.worker():
        await app.handle(greets, id).result()


@pytest.mark.parametrize(
    ("ours", "theirs", "names"),
    [
        (sync.Client, Outlive, ("start", "handle", "complete")),
        (
            sync.Handle,
            outlive.Handle,
            ("status", "result", "events", "send", "cancel", "terminate", "pause", "resume", "rollback"),
        ),
    ],
)
def test_the_signatures_are_those_of_the_asynchronous_ones(ours: type, theirs: type, names: tuple[str, ...]) -> None:
    public = {name for name, found in vars(ours).items() if inspect.isfunction(found) and not name.startswith("_")}
    assert public - {"do", "submit", "close"} == set(names)
    for name in names:
        mine, other = (inspect.signature(vars(one)[name]) for one in (ours, theirs))
        if name == "events":
            mine, other = (one.replace(return_annotation="") for one in (mine, other))
        assert mine == other, name
        assert not inspect.iscoroutinefunction(vars(ours)[name])


def test_a_run_is_started_told_something_and_asked_for(client: sync.Client) -> None:
    handle = client.start(greets, "Ada", id="greets-ada")
    assert (handle.id, handle.status()) == ("greets-ada", "ready")
    with pytest.raises(TimedOut):
        handle.result(timeout=timedelta(milliseconds=1))
    for _ in range(2):
        handle.send("greetings", "good evening", key="one")
    asyncio.run(work(handle.id))
    assert client.handle(greets, "greets-ada").result() == "good evening, Ada"
    client.close()
    assert handle.status() == "succeeded", "a client opens its store again"


def test_a_run_is_followed(client: sync.Client) -> None:
    handle = client.start(greets, "Ada", id="greets-ada")
    handle.send("greetings", "good evening", key="one")
    asyncio.run(work(handle.id))
    for deltas in (False, True):
        [ended] = handle.events(deltas=deltas)
        assert (ended.name, ended.data["status"]) == ("run.ended", "succeeded")
        assert list(handle.events(after=ended.cursor, deltas=deltas)) == []
    with pytest.raises(Refused):
        handle.events(after="x")


def test_a_start_in_the_callers_own_transaction(postgres: str) -> None:
    app._url = postgres
    with sync.Client(app) as client, psycopg.connect(place_of(postgres).conninfo) as connection:
        handle = client.start(greets, "Ada", id="greets-ada", connection=connection)
        connection.rollback()
        with pytest.raises(UnknownRun):
            handle.status()
        client.start(greets, "Ada", id="greets-ada", connection=connection)
        connection.commit()
        assert handle.status() == "ready"


class Interrupting(SystemClock):
    """Presses Ctrl-C as soon as somebody waits, and then never goes on."""

    async def sleep(self, seconds: float) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.Event().wait()


@pytest.fixture
def heeding_interrupts() -> Iterator[None]:
    """As in a terminal: what a shell starts in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeding_interrupts")
def test_who_is_interrupted_waits_no_more_and_leaves_nothing_running(tmp_path: Path) -> None:
    impatient: Outlive[None] = Outlive(f"sqlite:///{tmp_path / 'runs.db'}", clock=Interrupting())
    with sync.Client(impatient) as client:
        handle = client.start(greets, "Ada")
        with pytest.raises(KeyboardInterrupt):
            handle.result()
        assert handle.status() == "ready"
    assert "outlive-sync" not in [thread.name for thread in threading.enumerate()], "closing waits for what runs"


class Endless(SystemClock):
    """Never goes on."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


def test_who_is_interrupted_before_the_wait_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless: Outlive[None] = Outlive(f"sqlite:///{tmp_path / 'runs.db'}", clock=Endless())
    with sync.Client(endless) as client:
        handle = client.start(greets, "Ada")
        begin = _Serving.begin

        def interrupted(serving: _Serving, *work: Any) -> None:
            begin(serving, *work)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(_Serving, "begin", interrupted)
            handle.result()
        assert handle.status() == "ready"
    assert "outlive-sync" not in [thread.name for thread in threading.enumerate()], "closing waits for what runs"


async def test_inside_an_event_loop_it_is_refused(client: sync.Client) -> None:
    with pytest.raises(Refused, match="inside an event loop"):
        client.start(greets, "Ada")


def test_a_store_that_cannot_be_opened_is_said_each_time(tmp_path: Path) -> None:
    app._url = f"sqlite:///{tmp_path / 'no' / 'runs.db'}"
    with sync.Client(app) as client:
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                client.start(greets, "Ada")


FORKS = """
import os, sys
from outlive import Outlive, sync
from outlive.errors import Refused
from tests.app.test_sync import app, greets

app._url = f"sqlite:///{sys.argv[1]}/runs.db"
client = sync.Client(app)
client.start(greets, "Ada")
if os.fork() == 0:
    try:
        client.start(greets, "Bea")
    except Refused as refused:
        print(refused, flush=True)
    with sync.Client(app) as other:
        print(other.start(greets, "Bea", id="bea").status(), flush=True)
    os._exit(0)
os.wait()
"""


def test_after_a_fork_it_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    refused, status = done.stdout.splitlines()
    assert "a call after a fork" in refused
    assert status == "ready"
