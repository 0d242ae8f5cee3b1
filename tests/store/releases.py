"""Two made-up releases of one store, and the work that each has to be able to do while the other does too.

As a process, `python -m tests.store.releases URL FOLDER`, it is the upgrade to what the folder has; each file is told
of on a line, before it is applied and when it is committed.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlive.log.entry import verify
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.store import postgres, sqlite
from outlive.store.port import Append, Change, Claim, Claimed, Store
from outlive.store.postgres.connection import place_of
from outlive.store.postgres.upkeep import PostgresUpkeep
from outlive.store.sqlite.upkeep import SQLiteUpkeep
from outlive.store.upkeep import Upkeep, migrations
from outlive.testing.store_scene import event, new_run

ROOT = Path(__file__).parents[2]
LEASE = 60_000
FIRST = {store: Path(str(store.__file__)).parent / "migrations" for store in (postgres, sqlite)}


def release(folder: Path, first: Path, **later: str) -> Path:
    """A folder with the migrations of this release and later ones: `pre_0002="alter …"`, `whole_0002=…`."""
    folder.mkdir()
    for path in first.glob("*.sql"):
        shutil.copy(path, folder)
    for name, text in later.items():
        stage, number = name.split("_")
        dotted = "" if stage == "whole" else f".{stage}"
        (folder / f"{number}_later{dotted}.sql").write_text(text, "utf-8")
    return folder


async def take(store: Store, who: str, run: str) -> Claimed:
    """Claim the one run that there is of the agent *run*."""
    [claimed] = await store.claim(Claim(Owner(who), {run: "b"}, 1, LEASE))
    return claimed


async def act(store: Store, claimed: Claimed, *, change: Change | None = None) -> None:
    """Append twice and renew in between, as the owner; the last append makes the change."""
    head = await store.append(Append(claimed.authority, claimed.row.head, (event(),)))
    # Renewals come from a thread of their own, and wait while a file is applied.
    renewed = await asyncio.to_thread(store.renew, Owner(str(claimed.row.owner)), [claimed.authority], LEASE)
    assert renewed.kept == {claimed.authority}
    await store.append(Append(claimed.authority, head, (event(),), change))


async def work(store: Store, who: str, count: int) -> None:
    """So many runs from their start to their end, one after the other; nothing of it may fail."""
    for number in range(count):
        run = f"{who}-{number}"
        await store.start(new_run(run, agent=run))
        await act(store, await take(store, who, run), change=Change("succeeded"))
        row = await store.run(DEFAULT_TENANT, RunId(run))
        assert row is not None
        assert row.status == "succeeded"
        entries = await store.entries(DEFAULT_TENANT, RunId(run))
        assert verify(await store.key(DEFAULT_TENANT), run, entries) == row.head


async def hand_over(giver: Store, taker: Store, run: str) -> None:
    """One starts a run, works on it and gives it back; the other goes on with it and ends it."""
    await giver.start(new_run(run, agent=run))
    await act(giver, await take(giver, "giver", run), change=Change("ready"))
    await act(taker, await take(taker, "taker", run), change=Change("succeeded"))
    entries = await giver.entries(DEFAULT_TENANT, RunId(run))
    assert [one.kind for one in entries].count("claimed") == 2
    row = await giver.run(DEFAULT_TENANT, RunId(run))
    assert row is not None
    assert verify(await giver.key(DEFAULT_TENANT), run, entries) == row.head


def upkeep_to(url: str, folder: Path) -> Upkeep:
    """The care of a database by the release whose migrations are in the folder."""
    if url.startswith("sqlite:"):
        return SQLiteUpkeep(url.removeprefix("sqlite:///"), name=url, known=migrations(folder), wait=60.0)
    return PostgresUpkeep(place_of(url), known=migrations(folder), wait=60.0)


@contextmanager
def upgrading(url: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """An upgrade as a process, which is killed at the end of the block if it is still there."""
    command = [sys.executable, "-m", "tests.store.releases", url, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(
        upkeep_to(sys.argv[1], Path(sys.argv[2])).migrate(
            finish=False, told=lambda name, step: print(step, name, flush=True)
        )
    )
