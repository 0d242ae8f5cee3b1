"""The application: what its tools depend on, and where a worker finds its agents. Constructing it does no I/O."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from outlive import Outlive
from outlive.http import GuardedTransport


@dataclass
class Deps:
    """The three providers; opened once per worker, never logged."""

    hotel: httpx.AsyncClient
    flight: httpx.AsyncClient
    card: httpx.AsyncClient


@asynccontextmanager
async def open_deps() -> AsyncIterator[Deps]:
    def client(name: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=os.environ[f"{name}_URL"], transport=GuardedTransport(), timeout=10)

    async with client("HOTEL") as hotel, client("FLIGHT") as flight, client("CARD") as card:
        yield Deps(hotel, flight, card)


app: Outlive[Deps] = Outlive(deps=open_deps, include=["examples.travel.agent"])
