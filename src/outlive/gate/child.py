"""`python -m outlive.gate.child FD`: replays the runs that it is handed, alone, until there are no more.

It leaves the network before it imports anything of the application's. Everything that it knows comes through the
socket; what the application prints goes nowhere.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, cast

from outlive.gate.alone import Network, leave_network

if TYPE_CHECKING:
    from outlive.gate.judge import Bench
    from outlive.gate.judged import Judged
    from outlive.gate.recorded import Recorded
    from outlive.gate.wire import Asking

_BETWEEN = 100


def main(given: str) -> None:
    """`given`: the descriptor of the socket, and what the crew says to do, as JSON."""
    orders = json.loads(given)
    sys.dont_write_bytecode = True
    alone = bool(orders["alone"]) and leave_network()
    with socket.socket(fileno=orders["fd"]) as ours:
        asyncio.run(_work(ours, orders, Network(alone=alone), alone=alone))


async def _work(ours: socket.socket, orders: dict[str, object], network: Network, *, alone: bool) -> None:
    from outlive.gate.wire import Asking, Line

    reader, writer = await asyncio.open_connection(sock=ours)
    asking = Asking(Line(reader, writer))
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(asking.listen())
        await _serve(asking, orders, network, alone=alone)
        listening.cancel()


async def _serve(asking: Asking, orders: dict[str, object], network: Network, *, alone: bool) -> None:
    from outlive.app.locate import locate
    from outlive.app.settings import Settings
    from outlive.gate.judge import Bench, NoDeps
    from outlive.gate.watch import the_watch
    from outlive.gate.wire import TELL
    from outlive.store.port import Store
    from outlive.store.reading import read_only

    async with AsyncExitStack() as stack:
        try:
            app = locate(Settings.load(app=str(orders["app"])))
            deps: object = NoDeps(the_watch())
            if orders["deps"] or not app.has_deps:
                deps = await stack.enter_async_context(app.deps())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the crew says it in the place of us
            await asking.ask(TELL, "failed", json.dumps(_why(error)).encode())
            return
        watch = the_watch()
        watch.stay()
        bench = Bench(
            app.registry, read_only(cast("Store", asking)), watch, deps, limit_s=float(str(orders["limit_s"]))
        )  # fmt: skip
        await asking.ask(TELL, "ready", json.dumps(alone).encode())
        await _judge_all(asking, bench, network)


def _why(error: BaseException) -> str:
    from outlive.engine import failures
    from outlive.model.errors import OutliveError

    if isinstance(error, OutliveError):
        return str(error)
    return f"{type(error).__name__}: {error} (at {failures.place(error)})"


async def _judge_all(asking: Asking, bench: Bench, network: Network) -> None:
    """One after the other; the next one is on its way meanwhile."""
    from outlive.gate.wire import TAKE, TELL, unpacked

    gc.disable()  # between runs, not in them
    count = 0
    async with asyncio.TaskGroup() as group:
        upcoming = group.create_task(asking.ask(TAKE))
        while (body := (await upcoming).body) != b"null":
            upcoming, count = group.create_task(asking.ask(TAKE)), count + 1
            told = await _judged(bench, unpacked(body), network)
            await asking.ask(TELL, "judged", json.dumps(asdict(told)).encode())
            if count % _BETWEEN == 0:
                gc.collect()


async def _judged(bench: Bench, found: Recorded, network: Network) -> Judged:
    """The verdict; where something beside Python's sockets has reached for the network, once more to see what."""
    from outlive.gate.judge import judge

    network.tried()
    told = await judge(bench, found)
    if not network.tried():
        return told
    with network.following() as deeds:
        await judge(bench, found)
    what, line = (deeds[0].what, deeds[0].line) if deeds else ("reaches for the network", "")
    return replace(told, verdict="acts", found=what, line=line, why="")


if __name__ == "__main__":
    main(sys.argv[1])
