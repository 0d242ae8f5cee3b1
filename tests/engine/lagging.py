"""A database that fails over to a copy of itself which was behind, and what a person does about it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal, cast

from outlive.app import decide
from outlive.engine.control import Control
from outlive.engine.worker import Worker
from outlive.model.ids import DEFAULT_TENANT, Owner
from outlive.store.port import Store
from outlive.store.sqlite import SQLiteStore
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, base, begin


class Database:
    """The store of every worker here: first the primary, then the copy of it that is behind."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self._rig, self._now, self._copy = rig, rig.store, folder / "replica.db"
        self.behind = self.failed_over = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._now, name)

    def fall_behind(self) -> None:
        """What is committed from here on will be lost. Only the first call counts: the agent runs several times."""
        if not self.behind:
            self.behind = True
            with sqlite3.connect(self._copy.with_name("runs.db")) as primary, sqlite3.connect(self._copy) as copy:
                primary.backup(copy)
            primary.close()
            copy.close()

    async def fail_over(self) -> None:
        """The replica takes over; once."""
        if not self.failed_over:
            self.failed_over = True
            replica = SQLiteStore(
                self._copy, name="replica", clock=self._rig.clock, unsafe_durability=True, synchronous="off"
            )
            await replica.open()
            self._rig.store = self._now = replica

    async def close(self) -> None:
        if self.failed_over:
            await self._now.close()


async def start(rig: Rig, database: Database, body: Body) -> Worker:
    """Start the run and drive it to where it stops."""
    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, database))
    await rig.settle(worker)
    return worker


async def retry(rig: Rig) -> None:
    await decide.retry(control(rig), DEFAULT_TENANT, RUN, who="Ada", why="looked")


async def resolve(rig: Rig, operation: str, decision: Literal["happened", "did-not-happen", "abandon"]) -> None:
    await decide.resolve(
        control(rig), rig.app(base).registry, DEFAULT_TENANT, RUN, operation, decision, who="Ada", why="looked",
        outcome='"by hand"',
    )  # fmt: skip


def control(rig: Rig) -> Control:
    return Control(rig.store, rig.clock, Owner("person"))


def sends(rig: Rig) -> list[object]:
    return [arguments["what"] for _, arguments in rig.sent]
