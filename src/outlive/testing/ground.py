"""What a world of the lab stands on: a SQLite file, or a schema of a PostgreSQL database (schemas.py).

A world begins with an empty store, which it has for itself; everything that it stored can be read as bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from outlive.model.clock import Clock
from outlive.store.port import Store
from outlive.store.sqlite import open_sqlite
from outlive.testing.direct import DirectStore


class Ground(Protocol):
    """Where one store is. It need not be durable: nothing in a lab outlives its process."""

    async def open(self, clock: Clock) -> Store:
        """The open store."""
        ...

    async def stored(self) -> bytes:
        """Every byte that is stored, as the database keeps it."""
        ...

    async def close(self) -> None:
        """Close the store; what was in it may be gone. It may never have been open."""
        ...


class File:
    """A SQLite file, which stays. With `threads` it is used as in production, without them calls are done in place."""

    def __init__(self, path: Path, *, threads: bool = False) -> None:
        self._path, self._threads = path, threads
        self._store: Store | None = None

    async def open(self, clock: Clock) -> Store:
        if self._threads:
            url = f"sqlite:///{self._path}?synchronous=off"
            self._store = await open_sqlite(url, clock=clock, unsafe_durability=True)
        else:
            self._store = DirectStore(self._path, clock=clock)
            await self._store.open()
        return self._store

    async def stored(self) -> bytes:
        return b"".join(path.read_bytes() for path in self._path.parent.glob(self._path.name + "*") if path.is_file())

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
