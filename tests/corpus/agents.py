"""Agents of the corpus for what happens to runs: a worker dies, entries are lost, people and other runs have a say."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from outlive import DidNotHappen, Happened, Operation, Outlive, Run, Tool, Unclear
from outlive.approvals import Approval
from outlive.errors import OutliveError
from outlive.langgraph import ToolNode
from outlive.mcp import ToolError, ToolServer
from tests.corpus import people
from tests.corpus.deck import World
from tests.mcp.caller import Calls, at
from tests.sweep import letters
from tests.sweep.corpus import SOON, charge_next_month, double, triple

app: Outlive[World] = Outlive()
SETTLE = timedelta(seconds=5)


async def find(op: Operation[World]) -> Happened[str] | DidNotHappen | Unclear:
    """What the other side knows."""
    return Happened(op.deps.booked[op.key]) if op.key in op.deps.booked else DidNotHappen()


@app.tool(reconcile=find, settle_after=SETTLE, timeout=timedelta(minutes=1), retry=SOON)
async def deliver(op: Operation[World], what: str) -> str:
    """It can be looked up; what happens to it happens before it has acted."""
    await op.deps.meet(what)
    return op.deps.book(op.key, what)


@app.tool(settle_after=SETTLE, timeout=timedelta(minutes=1), retry=SOON)
async def dispatch(op: Operation[World], what: str) -> str:
    """Nobody can be asked; what happens to it happens when it has acted."""
    answer = op.deps.book(op.key, what)
    await op.deps.meet(what)
    return answer


@app.tool(effect="read", retry=SOON)
async def watch(op: Operation[World], what: str) -> str:
    await op.deps.meet(what)
    return f"saw {what}"


@app.agent()
async def delivers(run: Run[World], input: str) -> list[object]:
    first = await run.step(double, 1)
    return [first, await run.call(deliver, input), await run.step(triple, first)]


@app.agent()
async def dispatches(run: Run[World], input: str) -> list[object]:
    return [await run.call(watch, "before"), await run.call(dispatch, input), await run.call(deliver, "after")]


@app.agent()
async def puts_off(run: Run[World], input: str) -> str:
    return await run.call(charge_next_month, input)


class Rounds(BaseModel):
    """State of a loop."""

    left: list[str]
    done: list[str] = []


@app.agent()
async def rounds(run: Run[World], input: str) -> list[str]:
    """A loop of turns, each of which acts and looks."""
    done = [await run.call(watch, input)]
    async for state in run.turns(Rounds(left=["one", "two", "three", "four"])):
        if not state.left:
            return [*done, *state.done]
        what = state.left.pop(0)
        state.done += [await run.call(deliver, what), await run.call(watch, f"after {what}")]
    return []


class Euros(BaseModel):
    euros: float = 0


def in_euros(old: dict[str, int]) -> dict[str, float]:
    """What is saved is kept in euros."""
    return {"euros": old["cents"] / 100}


@app.agent(version="2", adopts={"1": in_euros})
async def saves(run: Run[World], input: str) -> str:
    """Its state is another than in the release before."""
    async for purse in run.turns(Euros()):
        purse.euros += 2.5
        if purse.euros > 10:
            return f"{purse.euros} euros"
        await run.sleep(timedelta(days=1))
    return "never"


@app.agent()
async def naps(run: Run[World], input: str) -> list[str]:
    """It cleans up by a call and a wait, if it is told to."""
    before = await run.call(deliver, input)
    try:
        await run.sleep(timedelta(days=2))
    except asyncio.CancelledError:
        await run.sleep(timedelta(minutes=5))
        await run.call(deliver, "cleaned up")
        raise
    return [before, await run.call(deliver, "rested")]


def much(letter: str) -> str:
    """More than stands in a row."""
    return letter * 33_000


@app.agent()
async def carries_much(run: Run[World], input: str) -> int:
    return len(await run.step(much, input[0]))


SLOWLY = Approval(
    role="finance", expires=timedelta(days=1), remind=timedelta(hours=6), on_expiry="escalate", escalate_to="board"
)


@app.tool(effect="idempotent", approval=SLOWLY, retry=SOON)
async def buy(op: Operation[World], what: str) -> str:
    return op.deps.booked.setdefault(op.key, f"{what}#{len(what)}")


@app.agent()
async def buys(run: Run[World], input: str) -> str:
    return await run.call(buy, input)


@app.tool(effect="idempotent", retry=SOON)
async def put_back(op: Operation[World]) -> str:
    return op.deps.booked.setdefault(op.key, f"{op.original.outcome} is back")


@app.tool(reconcile=find, settle_after=SETTLE, timeout=timedelta(minutes=1), retry=SOON)
async def refund(op: Operation[World]) -> str:
    await op.deps.meet("refund")
    return op.deps.book(op.key, f"refund of {op.original.arguments['what']}")


@app.tool(effect="idempotent", retry=SOON, compensate=put_back)
async def reserve(op: Operation[World], what: str) -> str:
    return op.deps.booked.setdefault(op.key, what)


@app.tool(reconcile=find, settle_after=SETTLE, timeout=timedelta(minutes=1), retry=SOON, compensate=refund)
async def pay_for(op: Operation[World], what: str) -> str:
    return op.deps.book(op.key, what)


@app.tool(effect="transactional", retry=SOON, compensate=put_back)
async def keep_row(op: Operation[World], what: str) -> str:
    await op.connection.execute("create table if not exists kept (what text)")
    await op.connection.execute(f"insert into kept values ({op.deps.mark})", (what,))
    return what


@app.agent(on_failure="rollback")
async def regrets(run: Run[World], input: str) -> str:
    await run.gather(run.call(reserve, input), run.call(pay_for, input))
    await run.call(keep_row, input)
    await run.call(deliver, "what nobody takes back")
    raise LookupError("nothing is left")


# What the server of tests.mcp.desk has listed. Who calls it says where it is: nothing is started to register its tools.
LISTING = Path(__file__).with_name("desk.json")
desk = ToolServer(app, "desk", at(Path("nowhere")))
TOOLS: dict[str, Tool[..., Any]] = dict(
    desk.tools(LISTING, effects={"search": "read", "whoami": "read", "label": "idempotent"})
)


@app.agent()
async def asks_a_server(run: Run[World], asked: Calls) -> list[str]:
    """Tools of an MCP server, one after another; what each of them gave."""
    given = []
    for name, arguments in asked:
        try:
            given.append((await run.call(TOOLS[name], arguments)).text)
        except (ToolError, OutliveError) as error:
            given.append(f"{type(error).__name__}: {error}")
    return given


class Declined(Exception):
    """There is no money."""


class Line(BaseModel):
    """What is charged for."""

    article: str
    cents: int = 100


@app.tool(effect="idempotent", raises=(Declined,))
async def bill(op: Operation[World], customer: str, line: Line) -> str:
    """Bill a customer."""
    if customer == "poor":
        raise Declined("no money")
    return op.deps.booked.setdefault(op.key, f"billed {customer} {line.article} {line.cents}")


@app.tool(effect="read")
async def count_orders(op: Operation[World], customer: str) -> dict[str, int]:
    """Count the orders of a customer."""
    return {"orders": len(customer)}


@app.tool(approval=Approval(role="boss"))
async def pay_out(op: Operation[World], customer: str) -> str:
    """Pay a customer."""
    return op.deps.book(op.key, f"paid {customer}")


# The agent of the tool calls of graphs.
OF_GRAPHS: list[Tool[..., Any]] = [bill, count_orders, pay_out]
ToolNode(OF_GRAPHS, app=app)

people.app.registry.agents |= app.registry.agents
people.app.registry.agents |= {agent.name: agent for agent in (letters.receives, letters.converses, letters.asks)}
people.app.registry.tools = {**app.registry.tools, **people.app.registry.tools}
