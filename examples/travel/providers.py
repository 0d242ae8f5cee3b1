"""The three providers as processes, each with a database of its own; and their books, for those who may read them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import httpx
from pydantic import BaseModel, TypeAdapter

from examples.dunning.fleet import ROOT
from examples.travel.provider import READY

# How each is, beside what they have in common.
MANNERS = {
    "hotel": ["--undoes-after-ms", "1500"],
    "flight": ["--refuses", "basic"],
    "card": ["--no-look-up"],
}
SLOW_MS = 300


class Line(BaseModel):
    """One line of a ledger: an order, or what undoes one."""

    number: str
    side: Literal["order", "undo"]
    key: str
    trip: str
    what: str
    cents: int
    undoes: str | None = None


class News(BaseModel):
    """Something that was accepted, and is done now."""

    event: str
    operation: str
    number: str


_lines = TypeAdapter(list[Line])
_news = TypeAdapter(list[News])
_keys = TypeAdapter(list[str])


class Providers:
    """Asks all of them."""

    def __init__(self, urls: dict[str, str]) -> None:
        self.urls = urls
        self._http = {name: httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) for name, url in urls.items()}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for http in self._http.values():
            await http.aclose()

    async def ledger(self, name: str) -> list[Line]:
        return _lines.validate_json((await self._http[name].get("/ledger")).raise_for_status().content)

    async def ledgers(self) -> dict[str, list[Line]]:
        return {name: await self.ledger(name) for name in self.urls}

    async def news(self) -> list[News]:
        """What the hotel has undone since it accepted that."""
        return _news.validate_json((await self._http["hotel"].get("/news")).raise_for_status().content)

    async def busy(self, name: str) -> list[str]:
        """The keys of what a provider is doing just now."""
        return _keys.validate_json((await self._http[name].get("/busy")).raise_for_status().content)

    async def persuade(self, trip: str) -> None:
        """Have the airline give back, for this trip, what it refuses."""
        (await self._http["flight"].post("/waive", json={"trip": trip})).raise_for_status()


@contextmanager
def providers(directory: Path, seed: int) -> Iterator[dict[str, str]]:
    """Their URLs by name; the processes end with the block, or with this one."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(_running(name, directory, seed)) for name in MANNERS}


@contextmanager
def _running(name: str, directory: Path, seed: int) -> Iterator[str]:
    command = [sys.executable, "-m", "examples.travel.provider", "--name", name, *MANNERS[name]]
    command += ["--ledger", str(directory / f"{name}.db"), "--slow-ms", str(SLOW_MS), "--seed", str(seed)]
    # Apart from the terminal's process group: Ctrl-C reaches the demo alone, which then cleans up.
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith(READY):
                raise RuntimeError(f"the provider did not start: {' '.join(command)}")
            yield line.removeprefix(READY).strip()
        finally:
            process.terminate()
