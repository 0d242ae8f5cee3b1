"""The application: what its tools depend on, and where a worker finds its agents. Constructing it does no I/O."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from examples.dunning.network import far_away
from outlive import Outlive
from outlive.http import GuardedTransport


@dataclass
class Deps:
    """Opened once per worker, never logged."""

    bank: httpx.AsyncClient


@asynccontextmanager
async def open_deps() -> AsyncIterator[Deps]:
    transport = far_away(GuardedTransport(), ms=int(os.environ.get("BANK_LAG_MS", "0")))
    async with httpx.AsyncClient(base_url=os.environ["BANK_URL"], transport=transport, timeout=10) as bank:
        yield Deps(bank)


app: Outlive[Deps] = Outlive(deps=open_deps, include=["examples.dunning.agent"])
