"""The world outside of an application: nothing for those of this corpus, and the real thing for examples."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from examples.dunning.bank_process import BankProcess
from examples.maintainer.repository import Repository
from examples.travel.providers import providers
from outlive.http import GuardedTransport
from tests.gate.releases import Release

_INPUTS = {
    "examples.clerk": "Book what has come in.", "examples.dunning": "europe", "examples.maintainer": "Do it.",
    "examples.research": "What is known about tea?",
    "examples.travel": {"id": "T1", "hotel_cents": 100, "flight_cents": 200, "fare": "flexible", "visa": True},
}  # fmt: skip


Deps = Callable[[Release], object]


@asynccontextmanager
async def outside(app: str, old: Release, directory: Path) -> AsyncIterator[tuple[Deps, object]]:
    """What tools of each release depend on, in front of one world; and what a run is given."""
    given = old.input
    if app in _INPUTS:
        given = old.registry.agent(old.agent).input.decode(json.dumps(_INPUTS[app]), where="the input")
    async with AsyncExitStack() as stack:
        yield await _deps(app, old, directory, stack), given


async def _deps(app: str, old: Release, directory: Path, stack: AsyncExitStack) -> Deps:
    match app:
        case "examples.clerk":
            file = directory / "ledger.db"
            return lambda release: _of(release).Desk(_of(release).INVOICES, _of(release).Ledger(file))
        case "examples.dunning":
            bank = stack.enter_context(BankProcess.start(directory / "bank.db"))
            client = await stack.enter_async_context(_client(bank.url))
            return lambda release: _of(release).Deps(client)
        case "examples.maintainer":
            root = Repository.made(directory / "repository").root
            return lambda release: _of(release).Desk(_of(release).Repository(root))
        case "examples.travel":
            urls = stack.enter_context(providers(directory, seed=1))
            each = {
                name.removesuffix("_URL").lower(): await stack.enter_async_context(_client(url))
                for name, url in urls.items()
            }
            return lambda release: _of(release).Deps(**each)
        case _:
            deps = old.deps
            return lambda _: deps


def _of(release: Release) -> Any:
    return release.module


def _client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, transport=GuardedTransport(), timeout=10)
