"""A log as a file: recorded from a run of the corpus, and laid back into a new store for the present code to replay.

`python -m tests.corpus.tape VERSION` records what is missing under `VERSION/`. What a release has recorded is
never recorded again: its logs must replay for ever.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from outlive import Agent
from outlive.app.compose import worker_of
from outlive.app.settings import Settings
from outlive.engine.worker import Worker
from outlive.log.entry import Draft, Entry
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import NewRun, RunRow
from outlive.secret import Secrets
from outlive.store.port import Append, Change, Claim
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock
from tests.corpus.people import RECORDED, Person, Release, app
from tests.sweep.corpus import Bank

LOGS = Path(__file__).parent
RUN = RunId("recorded")
KEY = bytes(range(32))


class Untouchable:
    """The world of a replay: whoever reaches for it has executed something that was recorded."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"the replay reached for {name} of the outside world")


class Token:
    """The one secret of the corpus."""

    def get(self, name: str) -> str | None:
        return "t0p-s3cret-c4nary"

    def names(self) -> list[str]:
        return ["bank/token"]

    def describe(self, name: str) -> str:
        return "the tape"


@dataclass
class Deck:
    """A store of its own with one run, and workers for it."""

    store: SQLiteStore
    clock: ManualClock
    executed: list[str]

    def worker(self, deps: object, secrets: Secrets) -> Worker:
        return worker_of(
            app.registry, self.store, Settings(), self.clock, deps, secrets=secrets, wake_in_place=False,
            on_send=lambda tool, _, __: self.executed.append(tool.name),
        )  # fmt: skip

    async def play(self, worker: Worker, person: Person | None = None) -> RunRow:
        """Drive the run to its end, jumping over its waits. A person is asked whenever it stands still."""
        while True:
            while await worker.claim():
                await worker.idle()
            row = await self.store.run(DEFAULT_TENANT, RUN)
            assert row is not None
            if not row.ended and person is not None and await person(self.store, self.clock, row):
                continue
            if row.ended or row.status == "blocked":
                return row
            assert row.wake_at is not None, f"it is {row.status} ({row.detail}), and nothing is due"
            self.clock.advance(timedelta(milliseconds=max(1, row.wake_at - self.clock.now())))

    async def log(self) -> list[Entry]:
        return await self.store.entries(DEFAULT_TENANT, RUN)


async def deck(directory: Path, clock: ManualClock, key: bytes) -> Deck:
    """A new store with a key that is known."""
    database = directory / "recorded.db"
    store = SQLiteStore(database, name="recorded", clock=clock, unsafe_durability=True, synchronous="off")
    await store.open()
    with sqlite3.connect(database) as direct:
        direct.execute("insert into tenant values (?, ?, ?)", (DEFAULT_TENANT, key, 0))
    return Deck(store, clock, [])


async def record(agent: Agent[str, object], to: Path, person: Person | None) -> None:
    """One undisturbed run of the corpus, entry by entry, and the key of its digests."""
    with TemporaryDirectory() as directory:
        made = await deck(Path(directory), ManualClock(), KEY)
        client = type(app)(clock=made.clock)
        client.registry = app.registry
        client.use(made.store)
        await client.start(agent, "inv", id=RUN)
        await made.play(made.worker(Bank(), Token()), person)
        drafts = [_draft(entry) for entry in await made.log()]
        await made.store.close()
    lines = [json.dumps({"key": KEY.hex()}), *(json.dumps(asdict(draft)) for draft in drafts)]
    await asyncio.to_thread(to.write_text, "\n".join(lines) + "\n")


async def lay(path: Path, directory: Path) -> tuple[Deck, list[Draft]]:
    """A store with the recorded log but for its last entry, ready to be claimed; and the whole log."""
    first, *rest = map(json.loads, (await asyncio.to_thread(path.read_text)).splitlines())
    drafts = [Draft(**one) for one in rest]
    made = await deck(directory, ManualClock(now=drafts[-1].at), bytes.fromhex(first["key"]))
    facts = json.loads(drafts[0].body)
    new = NewRun(DEFAULT_TENANT, RUN, facts["agent"], facts["version"], drafts[0].payload or "", facts["input_digest"])
    await made.store.start(new)
    (claimed,) = await made.store.claim(Claim(Owner("tape"), {facts["agent"]: "tape"}, 1, 30_000))
    head = claimed.row.head
    # The first claim is the one that was just made. Entries name others by their number: all keep their place.
    for draft in drafts[2:-1]:
        head = await made.store.append(Append(claimed.authority, head, (draft,), turn=draft.kind == "turn"))
    await made.store.append(Append(claimed.authority, head, (), Change("ready")))
    return made, drafts


def _draft(entry: Entry) -> Draft:
    return Draft(entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body, entry.payload)


async def _record_all(version: str) -> None:
    to = LOGS / version
    to.mkdir(parents=True, exist_ok=True)
    for agent, person in RECORDED:
        path = to / f"{agent.name}.jsonl"
        if not path.exists():
            Release.new = agent.name != "adopted"
            await record(agent, path, person)
            print(path.name)


if __name__ == "__main__":
    asyncio.run(_record_all(sys.argv[1]))
