"""A shop whose agent reserves, charges and ships, and takes all of that back: what the tests of rollbacks play."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import BaseModel

from outlive import DidNotHappen, Happened, NotSent, Operation, Outlive, Retry, Run, Unclear
from outlive.app.client import Handle
from outlive.app.decide import Word, resolve
from outlive.approvals import Approval
from outlive.engine.control import Control
from outlive.engine.operation import Original
from outlive.engine.undoing import Undone
from outlive.engine.worker import Worker, owner_name
from outlive.model.ids import DEFAULT_TENANT
from outlive.model.operation import OperationRow
from outlive.model.run import RunRow
from outlive.store.sqlite import SQLiteStore
from tests.engine.rig import Rig

RUN = "order-1"
BACK = "order-1-rollback"
Hook = Callable[[Operation[None]], Awaitable[None]]
Body = Callable[[Run[None]], Awaitable[object]]
RETRY = Retry(attempts=2, first=timedelta(seconds=1))


class Receipt(BaseModel):
    """What the shop gives for a charge."""

    number: str
    cents: int


Answer = Happened[Receipt] | DidNotHappen | Unclear


@dataclass
class Shop:
    """What was really done, in order, and what the other side does about the next call of a tool."""

    done: list[str] = field(default_factory=list)
    keys: dict[str, set[str]] = field(default_factory=dict)
    originals: dict[str, Original] = field(default_factory=dict)
    hooks: dict[str, Hook] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    body: Body | None = None
    asked: Callable[[], None] | None = None

    async def act(self, name: str, what: str, op: Operation[None]) -> None:
        """Do it, unless something is the matter with it; a key that is known changes nothing where keys count."""
        if (hook := self.hooks.get(f"before {name}")) is not None:
            await hook(op)
        known = self.keys.setdefault(name, set())
        if op.key not in known or name in ("charge", "refund", "ship"):
            self.done.append(f"{name} {what}")
        known.add(op.key)
        if (hook := self.hooks.get(f"after {name}")) is not None:
            await hook(op)

    def count(self, what: str) -> int:
        """How often it was really done."""
        return self.done.count(what)


shop = Shop()


def reset() -> None:
    """A new shop."""
    shop.__dict__.update(vars(Shop()))


app: Outlive[None] = Outlive()


async def look_up(op: Operation[None]) -> Answer:
    if shop.asked is not None:
        shop.asked()
    return shop.answers.get("charge", Unclear("not now"))


async def look_up_recall(op: Operation[None]) -> Happened[None] | DidNotHappen | Unclear:
    return Happened(None) if f"recall {op.original.arguments['what']}" in shop.done else DidNotHappen()


async def refund(op: Operation[None]) -> None:
    """External, and cannot be looked up."""
    shop.originals["refund"] = op.original
    await shop.act("refund", str(op.original.arguments["what"]), op)


@app.tool(effect="idempotent", retry=RETRY)
async def release(op: Operation[None]) -> None:
    await shop.act("release", str(op.original.arguments["what"]), op)


@app.tool(effect="external", reconcile=look_up_recall, settle_after=timedelta(seconds=1), timeout=timedelta(seconds=9))
async def recall(op: Operation[None]) -> None:
    await shop.act("recall", str(op.original.arguments["what"]), op)


@app.tool(effect="idempotent", approval=Approval(role="finance", expires=timedelta(days=1)))
async def allowed(op: Operation[None]) -> None:
    await shop.act("allowed", str(op.original.arguments["what"]), op)


@app.tool(effect="idempotent", compensate=release, retry=RETRY)
async def reserve(op: Operation[None], what: str) -> str:
    await op.note(shelf="7")
    await shop.act("reserve", what, op)
    return f"reserved {what}"


@app.tool(
    compensate=refund, reconcile=look_up, retry=RETRY, settle_after=timedelta(seconds=1), timeout=timedelta(seconds=9)
)
async def charge(op: Operation[None], what: str) -> Receipt:
    await shop.act("charge", what, op)
    return Receipt(number=f"r-{what}", cents=4200)


@app.tool(compensate=recall, retry=RETRY, settle_after=timedelta(seconds=1), timeout=timedelta(seconds=9))
async def ship(op: Operation[None], what: str) -> str:
    await shop.act("ship", what, op)
    return f"shipped {what}"


@app.tool(compensate=allowed, retry=RETRY)
async def transfer(op: Operation[None], what: str) -> str:
    await shop.act("transfer", what, op)
    return f"moved {what}"


@app.tool()
async def mail(op: Operation[None], what: str) -> str:
    await shop.act("mail", what, op)
    return f"sent {what}"


@app.agent()
async def order(run: Run[None], task: str) -> str:
    assert shop.body is not None
    return str(await shop.body(run))


@app.agent(on_failure="rollback")
async def careful(run: Run[None], task: str) -> str:
    assert shop.body is not None
    return str(await shop.body(run))


async def buys(run: Run[None]) -> object:
    """Three calls that can be undone, and one that cannot."""
    await run.call(reserve, "book")
    await run.call(charge, "book")
    await run.call(mail, "book")
    return await run.call(ship, "book")


ALL = ["reserve book", "charge book", "mail book", "ship book"]
UNDONE = [*ALL, "recall book", "refund book", "release book"]


async def begin(rig: Rig, body: Body = buys, *, agent: object = None, id: str = RUN) -> Worker:
    """Start an order and give a worker; nothing is driven yet."""
    shop.body = body
    here = rig.app(app)
    await here.start(order if agent is None else careful, "task", id=id)
    return rig.worker(here)


async def ended(rig: Rig, body: Body = buys) -> Worker:
    """An order that has ended."""
    worker = await begin(rig, body)
    assert (await rig.until_ended(worker, RUN)).ended
    return worker


async def ask(rig: Rig, run: str = RUN, why: str = "the customer is gone") -> Handle[Undone]:
    """Somebody asks for its rollback."""
    return await rig.app(app).handle(order, run).rollback(who="ada", why=why)


async def rolled_back(rig: Rig, worker: Worker, run: str = BACK) -> RunRow:
    """Drive the rollback to its end, or until it is blocked."""
    return await rig.until_ended(worker, run)


async def statuses(rig: Rig, run: str = RUN) -> dict[str, str]:
    """By tool, the status of the only operation of it."""
    return {row.tool: row.status for row in await rig.operations(run)}


async def one(rig: Rig, tool: str, run: str = RUN) -> OperationRow:
    """The only operation of a tool."""
    (found,) = [row for row in await rig.operations(run) if row.tool == tool]
    return found


def control(rig: Rig) -> Control:
    return Control(rig.store, rig.clock, owner_name(rig.clock))


async def decide(rig: Rig, row: OperationRow, word: Word, outcome: str | None = None) -> None:
    """A person says what became of an operation."""
    await resolve(
        control(rig), app.registry, DEFAULT_TENANT, row.run, row.id, word, who="ada", why="she looked", outcome=outcome
    )


async def retry(rig: Rig, run: str = BACK) -> None:
    """A person lets it be tried again."""
    row = await rig.row(run)
    await control(rig).retry(row, who="ada", why="it works again")


def refuses(times: int) -> Hook:
    """The other side turns so many calls away before anything happens."""
    left = [times]

    async def hook(op: Operation[None]) -> None:
        if left[0]:
            left[0] -= 1
            raise NotSent("closed")

    return hook


async def loses(op: Operation[None]) -> None:
    """The answer is lost."""
    raise ConnectionResetError("the answer was lost")


async def crash_in(rig: Rig, moment: str) -> None:
    """Drive by a worker that dies at that moment of a call, which happens once."""
    reached = asyncio.Event()

    async def hangs(op: Operation[None]) -> None:
        reached.set()
        await asyncio.Event().wait()

    shop.hooks[moment] = hangs
    await rig.crash(rig.mortal(rig.app(app)), reached)
    del shop.hooks[moment]


def write(rig: Rig, statement: str) -> None:
    """Somebody changes the file behind the back of the store."""
    assert isinstance(rig.store, SQLiteStore)
    with closing(sqlite3.connect(rig.store._path)) as database:
        database.execute(statement)
        database.commit()
