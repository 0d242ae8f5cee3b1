"""An agent of the SDK that calls registered tools and plain ones, several at a time, one that does not exist, one with
arguments that do not fit, and one that people must agree to.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from agents import Agent, RunContextWrapper, function_tool

from outlive import Operation, Outlive, Retry
from outlive.openai_agents import agent, operation, toolset
from tests.openai_agents.talking import Items, Said, Talking, call, told, turns, whole
from tests.sweep.corpus import Bank

app: Outlive[Bank] = Outlive()

asked: Counter[int] = Counter()
"""How often the model was asked for each of its turns, by every worker of every run."""


@app.tool(effect="read", retry=Retry(attempts=3, first=timedelta(seconds=5)))
async def look(op: Operation[Bank], what: str) -> str:
    """See something."""
    return f"saw {what}"


@app.tool(effect="idempotent")
async def put(op: Operation[Bank], what: str, times: int = 1) -> dict[str, int]:
    """Put something there.

    Args:
        what: what is put
        times: how often
    """
    op.deps.booked.setdefault(op.key, what)
    return {what: times}


@function_tool
async def book(ctx: RunContextWrapper[Bank], what: str) -> str:
    """Book it."""
    return ctx.context.book(operation().key, what)


@function_tool
def shy(number: int) -> str:
    """On a thread, and only for numbers."""
    return f"shy about {number}"


@function_tool(needs_approval=True)
async def pay(ctx: RunContextWrapper[Bank], cents: int) -> str:
    """Pay it."""
    return ctx.context.book(operation().key, f"{cents} paid")


TURNS: list[Said] = [
    [call("look", what="a"), call("put", what="b"), call("book", what="c")],
    [call("put", what="d", times=2), call("nothing_like_it", what="e"), call("shy", number="f")],
    [call("shy", number=3), call("pay", cents=7)],
]


def answer(items: Items) -> Said:
    """The next response: it follows from what has been said."""
    whole(items)
    turn = turns(items)
    asked[turn] += 1
    return TURNS[turn] if turn < len(TURNS) else " | ".join(told(items))


clerk = Agent[Bank](
    name="clerk", model=Talking(answer), instructions="Book it.", tools=[*toolset(look, put), book, shy, pay]
)  # fmt: skip
by_clerk = agent(app, clerk, effects={"shy": "read"})

SAID = 'begin | saw a | {"b": 1} | c#1 | {"d": 2} | '
