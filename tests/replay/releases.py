"""Releases of one small application: each a file of its own, served by a worker up to where its runs stand still."""

from __future__ import annotations

import importlib
import itertools
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from outlive import Agent, Outlive
from outlive.app.compose import open_store, worker_of
from outlive.app.settings import Settings
from outlive.model.clock import SystemClock
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.run import RunRow

TEXT = """
from outlive import Operation, Outlive, Run

app = Outlive()


def compute(n: int) -> int:
    return n * 2


@app.tool(effect="external")
async def charge(op: Operation, invoice: str, cents: int) -> str:
    return f"charged {invoice}"


@app.agent(version="1")
async def dunning(run: Run, invoice: str) -> str:
    cents = await run.step(compute, 21)
    done = await run.call(charge, invoice, cents)
    # here
    answer = await run.receive("go", str)
    return f"{done}, {answer}"
"""
_NUMBERS = itertools.count()


@dataclass
class Releases:
    """A directory of releases, and a store that their runs live in."""

    directory: Path
    store: str
    names: list[str] = field(default_factory=list)

    def release(self, *changes: tuple[str, str], text: str = TEXT) -> str:
        """A release with these replacements, each of which has to hit once; the name of its application."""
        for old, new in changes:
            assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the release"
            text = text.replace(old, new)
        name = f"release_{next(_NUMBERS)}"
        (self.directory / f"{name}.py").write_text(text, "utf-8")
        self.names.append(name)
        return f"{name}:app"

    def app(self, name: str) -> Outlive[object]:
        """The application of a release, in this process."""
        if str(self.directory) not in sys.path:
            sys.path.insert(0, str(self.directory))
        importlib.invalidate_caches()
        found = importlib.import_module(name.partition(":")[0]).app
        assert isinstance(found, Outlive)
        return found

    async def serve(self, name: str, *runs: str, input: object = "INV-7", send: object = None) -> list[RunRow]:
        """Start these runs with a release, or send them something on *go*, and drive them until they stand still."""
        app, clock = self.app(name), SystemClock()
        store = await open_store(Settings.load({}, store=self.store), clock)
        try:
            app.use(store)
            (spec,) = app.registry.agents.values()
            agent = cast("Agent[object, object]", spec)
            for run in runs:
                if send is None:
                    await app.start(agent, input, id=run)
                else:
                    await app.handle(agent, run).send("go", send, key=run)
            worker = worker_of(app.registry, store, Settings(), clock, None, wake_in_place=False)
            while await worker.claim():
                await worker.idle()
            rows = [await store.run(DEFAULT_TENANT, RunId(run)) for run in runs]
            return [row for row in rows if row is not None]
        finally:
            await store.close()

    def forget(self) -> None:
        """What was imported is imported no longer."""
        for name in self.names:
            sys.modules.pop(name, None)
        if str(self.directory) in sys.path:
            sys.path.remove(str(self.directory))
