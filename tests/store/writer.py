"""A process of its own that uses a store: `python writer.py VERB PATH NAME`. It says what it has done, line by line.

append N   append N entries to a run of its own, once a line has come in
claim      claim runs one by one until there are none, once a line has come in
hold       open a transaction, write in it, and stay there until a line comes in
"""

import asyncio
import sys

from outlive.model.clock import SystemClock
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import NewRun
from outlive.store.port import Append, Claim
from outlive.store.sqlite import SQLiteStore
from outlive.testing.store_scene import event


def say(line: str) -> None:
    print(line, flush=True)


async def heard() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


async def append(store: SQLiteStore, name: str, count: int) -> None:
    await store.start(NewRun(DEFAULT_TENANT, RunId(name), name, "1", "{}", ""))
    [claimed] = await store.claim(Claim(Owner(name), {name: "b"}, 1, 60_000))
    head = claimed.row.head
    say("ready")
    await heard()
    for _ in range(count):
        head = await store.append(Append(claimed.authority, head, (event(),)))
    say("done")


async def claim(store: SQLiteStore, name: str) -> None:
    say("ready")
    await heard()
    while claimed := await store.claim(Claim(Owner(name), {"clerk": "b"}, 1, 60_000)):
        say(claimed[0].row.id)
    say("done")


async def hold(store: SQLiteStore) -> None:
    async with store.transaction() as transaction:
        await transaction.execute("create table effect (number integer)")
        await transaction.execute("insert into effect values (1)")
        say("inside")
        await heard()
    say("done")


async def main(verb: str, path: str, name: str, count: int) -> None:
    store = SQLiteStore(path, name=path, clock=SystemClock())
    await store.open()
    match verb:
        case "append":
            await append(store, name, count)
        case "claim":
            await claim(store, name)
        case _:
            await hold(store)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
