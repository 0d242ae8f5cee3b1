"""Agents whose logs need somebody beside the worker: who cancels, approves, adopts what a release differs
in, or tells an outcome that comes later.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from outlive import Agent, DidNotHappen, Happened, Operation, Outlive, Run
from outlive.app.approvals import Approvals
from outlive.app.complete import complete
from outlive.approvals import Approval
from outlive.engine.adoption import Acceptance
from outlive.engine.control import Control
from outlive.errors import Rejected
from outlive.log.difference import Adoption
from outlive.model.ids import Owner
from outlive.model.run import RunRow
from outlive.store.port import Store
from outlive.testing.clock import ManualClock
from tests.corpus.frameworks import of_frameworks
from tests.pydantic_ai import noter
from tests.sweep import cancelled, corpus, keys
from tests.sweep import later as later_scenes
from tests.sweep.cancelled import CANCELLED
from tests.sweep.corpus import CORPUS, SOON, Bank, double, triple

app: Outlive[Bank] = Outlive()
for scenes in (corpus.app, cancelled.app, keys.app, noter.app):
    app.registry.agents |= scenes.registry.agents
    app.registry.tools |= scenes.registry.tools
_TOOLS, FRAMEWORKS = of_frameworks()
app.registry.tools = {**_TOOLS, **app.registry.tools}
app.registry.agents |= {agent.name: agent for agent in FRAMEWORKS}

# Whether there is something that somebody has just done about the run.
Person = Callable[[Store, ManualClock, RunRow], Awaitable[bool]]


@app.tool(approval=Approval(role="finance", expires=timedelta(days=1)), retry=SOON)
async def pay(op: Operation[Bank], what: str) -> str:
    return op.deps.book(op.key, what)


@app.agent()
async def approved(run: Run[Bank], input: str) -> list[str]:
    said = [await run.call(pay, f"{input} as it is"), await run.call(pay, f"{input} as it was corrected")]
    try:
        await run.call(pay, f"{input} too much")
    except Rejected as rejected:
        said.append(rejected.reason)
    return said


async def decides(store: Store, clock: ManualClock, _: RunRow) -> bool:
    """Approves one, corrects another, and rejects the third."""
    desk = Approvals(lambda: store, clock, app.registry, None)
    waiting = await desk.list()
    for one in waiting:
        if "too much" in one.shown:
            await desk.reject(one.id, who="ada", role=one.role, why="it is too much")
        else:
            other = {"what": "corrected"} if "corrected" in one.shown else None
            await desk.approve(one.id, who="ada", role=one.role, arguments=other, why="it is owed")
    return bool(waiting)


class Release:
    """Which of its releases the agent `adopted` is: the old one is there until its run waits for the first time."""

    new = True


@app.agent()
async def adopted(run: Run[Bank], input: str) -> list[int]:
    if not Release.new:
        for step, number in ((double, 1), (triple, 2), (double, 3), (triple, 4)):
            await run.step(step, number)
        await run.sleep(timedelta(days=1))
        return []
    given = [await run.step(triple, 20), await run.step(triple, 2), await run.step(double, 30)]
    given.append(await run.step(triple, 40))
    await run.sleep(timedelta(days=1))
    return given


_HOW: tuple[Adoption, ...] = ("skip", "insert", "take-old", "run-again")


async def agrees(store: Store, clock: ManualClock, _: RunRow) -> bool:
    """Approves whatever an agent of a framework asks for."""
    desk = Approvals(lambda: store, clock, app.registry, None)
    waiting = await desk.list()
    for one in waiting:
        await desk.approve(one.id, who="ada", role="approver", why="it is owed")
    return bool(waiting)


async def adopts(store: Store, clock: ManualClock, row: RunRow) -> bool:
    """Lets the new release in, and accepts each of its differences in another way."""
    if row.status == "waiting" and not Release.new:
        Release.new = True
    elif row.reason == "diverged":
        how = _HOW[sum(entry.kind == "adopted" for entry in await store.entries(row.tenant, row.id))]
        await Control(store, clock, Owner("person")).adopt(row, Acceptance(how, "ada", "it was looked at"))
        return True
    return False


async def tells(store: Store, clock: ManualClock, row: RunRow) -> bool:
    """What the other side has taken on first, did not happen; everything else did."""
    control = Control(store, clock, Owner("the other side"))
    waiting = [one for one in await store.operations(row.tenant, row.id) if one.status == "later"]
    for one in waiting:
        told = Happened("inv#3") if one.attempt > 1 or one.tool == "order_once" else DidNotHappen(note="out of stock")
        await complete(control, app.registry, row.tenant, one.id, told, key=f"evt-{one.attempt}")
    return bool(waiting)


RECORDED: list[tuple[Agent[str, object], Person | None]] = [
    *((agent, None) for agent in (*CORPUS, *CANCELLED)), (approved, decides), (adopted, adopts),
    (later_scenes.orders, tells), (keys.beside, tells), (noter.by_noter, None),
    *((agent, agrees) for agent in FRAMEWORKS),
]  # fmt: skip
