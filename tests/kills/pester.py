"""A process that does one verb after the other to the runs of a store, whatever others do to them at the same time.

Started by a test with the store, a seed, and a time in seconds. Being refused is fine; any other error is not.
"""

import asyncio
import sys
from collections import Counter

from outlive import Handle, errors
from outlive.app import operate
from outlive.app.settings import Settings
from outlive.model.ids import DEFAULT_TENANT
from outlive.model.run import RunFilter
from outlive.testing.clock import ManualClock
from tests.kills.agents import app, paying
from tests.kills.waiting import now, rest

# How often each is done, of a hundred times: runs that have ended cannot be pestered any more.
VERBS = {"pause": 30, "resume": 50, "retry": 10, "fork": 6, "cancel": 2, "terminate": 2}


def drawn(number: float) -> str:
    """A verb, by a number from 0 to 1."""
    left = number * sum(VERBS.values())
    for verb, often in VERBS.items():
        left -= often
        if left < 0:
            return verb
    return "resume"


async def do(verb: str, run: Handle[list[str]], name: str) -> None:
    match verb:
        case "cancel":
            await run.cancel(who=name, why="pestering")
        case "pause":
            await run.pause(who=name)
        case "resume":
            await run.resume(who=name)
        case "retry":
            await operate.retry(app.opened, DEFAULT_TENANT, run.id, who=name, why="")
        case "fork":
            await run.fork(who=name)
        case _:
            await run.terminate(who=name)


async def pester(url: str, seed: str, seconds: float) -> None:
    chance, end, counts = ManualClock(seed=seed), now() + seconds, Counter[str]()
    await app.open(Settings.load(store=url))
    try:
        while now() < end:
            every = await app.opened.runs(DEFAULT_TENANT, RunFilter(limit=1000))
            verb, run = drawn(chance.random()), every[int(chance.random() * len(every))]
            try:
                await do(verb, app.handle(paying, run.id), f"pester-{seed}")
                counts[verb] += 1
            except errors.OutliveError as error:
                counts[f"{verb}: {type(error).__name__}"] += 1
            await rest(0.02)
    finally:
        await app.close()
    print(dict(sorted(counts.items())))


if __name__ == "__main__":
    asyncio.run(pester(sys.argv[1], sys.argv[2], float(sys.argv[3])))
