"""`DurableRunner` and `DurableSession` in a function agent: what is repeated from the log, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import Agent, RunConfig, RunContextWrapper, Runner, RunState, function_tool
from agents.exceptions import UserError
from agents.run_context import RunContextWrapper as Wrapper
from pydantic import BaseModel

from outlive import Outlive, Run
from outlive.errors import Refused, RunFailed, ScopeError
from outlive.harness import costs
from outlive.log.entry import Entry
from outlive.model.ids import RunId
from outlive.openai_agents import DurableRunner, DurableSession, operation, toolset
from outlive.testing import lab
from outlive.testing.audit import whole_log
from tests.openai_agents import desk
from tests.openai_agents.talking import Items, Said, Talking, call, told, turns, whole
from tests.sweep.corpus import Bank

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)

app: Outlive[Bank] = Outlive()
asked: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def fresh() -> None:
    asked.clear()


@function_tool
async def book(ctx: RunContextWrapper[Bank], what: str) -> str:
    """Book it."""
    return ctx.context.book(operation().key, what)


@function_tool(needs_approval=True)
async def pay(ctx: RunContextWrapper[Bank], cents: int) -> str:
    """Pay it."""
    return ctx.context.book(operation().key, f"{cents} paid")


def answer(items: Items) -> Said:
    """For each thing that a person says: two bookings at once and a payment, then all that was told."""
    whole(items)
    said = " | ".join(told(items))
    asked[said] += 1
    last = items[-1]
    if last.get("role") == "user":
        number = sum(one.get("role") == "user" for one in items)
        return [call("book", what=f"a{number}"), call("book", what=f"b{number}"), call("pay", cents=number)]
    return said


clerk = Agent[Bank](name="clerk", model=Talking(answer), tools=[book, pay])
runner = DurableRunner(app, clerk)


@app.agent()
async def talk(run: Run[Bank], prompt: str) -> list[str]:
    """Twice in one session."""
    session = DurableSession(run)
    said = []
    for one in (prompt, "more"):
        result = await runner.run(clerk, one, context=run.deps, session=session)
        assert not result.interruptions
        assert result.last_agent is clerk
        said.append(str(result.final_output))
    return said


SAID = ["begin | a1#2 | b1#2 | 1 paid#6", "begin | a1#2 | b1#2 | 1 paid#6 | more | a2#2 | b2#2 | 2 paid#6"]


@BOTH
async def test_a_conversation_waits_for_people_and_is_repeated_from_the_log(store: str) -> None:
    for evict in (False, True):
        asked.clear()
        bank = Bank()
        async with lab(app, deps=bank, store=store, evict=evict) as t:
            run = await t.start(talk, "begin")
            for cents in (1, 2):
                await t.advance(seconds=1)
                assert await t.status(run) == "waiting"
                await t.approve("clerk.pay", arguments={"cents": cents})
            assert await run.result() == SAID
        assert set(asked.values()) == {1}, "a model was asked twice"
        assert set(bank.acted.values()) == {1}, "an effect happened twice"


@pytest.mark.deaths
async def test_wherever_its_workers_die_it_says_the_same() -> None:
    bank = Bank()
    async with lab(app, deps=bank) as t:
        t.approver = lambda row: "approve"
        report = await t.sweep(talk, "begin", person=bank.know, every=9)
    assert set(report.ends) == {"succeeded"}
    assert max(bank.acted.values()) == 1, "an effect happened twice"


@app.agent()
async def beside(run: Run[Bank], prompt: str) -> list[str]:
    """Two conversations at once, each in a scope of its own."""

    async def one(said: str) -> str:
        return str((await runner.run(clerk, said, context=run.deps)).final_output)

    return list(await run.gather(one(prompt), one("other")))


async def test_two_conversations_go_on_beside_each_other() -> None:
    for evict in (False, True):
        asked.clear()
        bank = Bank()
        async with lab(app, deps=bank, evict=evict) as t:
            run = await t.start(beside, "begin")
            await t.advance(seconds=1)
            waiting = await t._desk().list()
            for each in waiting:
                await t._desk().approve(each.id, who="lab", role="approver", why="it is owed")
            assert len(waiting) == 2
            assert await run.result() == [f"{one} | a1#2 | b1#2 | 1 paid#6" for one in ("begin", "other")]
        assert set(asked.values()) == {1}
        assert set(bank.acted.values()) == {1}


class Heard(BaseModel):
    """What a loop of turns keeps."""

    said: list[str] = []


@app.agent()
async def chat(run: Run[Bank], prompt: str) -> str:
    """A loop of turns: what its session has is not in the window any longer."""
    before = DurableSession(run)
    await before.add_items([{"role": "user", "content": "before"}, {"role": "user", "content": "dropped"}])
    await before.pop_item()
    async for heard in run.turns(Heard()):
        session = DurableSession(run)
        await session.add_items([{"role": "user", "content": f"turn {len(heard.said)}"}])
        other = DurableSession(run, "other")
        await other.add_items([{"role": "user", "content": "beside"}])
        await other.clear_session()
        assert await other.pop_item() is None
        heard.said = [str(one.get("content")) for one in await session.get_items(limit=3)]
        if len(heard.said) == 3:
            return ",".join([*heard.said, str(len(await session.get_items()))])
    return prompt


@BOTH
async def test_a_session_outlives_the_turns_of_a_loop(store: str) -> None:
    for evict in (False, True):
        async with lab(app, deps=Bank(), store=store, evict=evict) as t:
            assert await t.run(chat, "begin") == "before,turn 0,turn 2,3"


@app.agent()
async def with_state(run: Run[Bank], prompt: str) -> str:
    """Somebody hands over a state of the SDK in which a call is approved."""
    state: RunState[Any] = RunState(Wrapper(run.deps), prompt, clerk)
    await runner.run(clerk, state)
    return prompt


async def test_a_run_state_is_not_trusted() -> None:
    async with lab(app, deps=Bank()) as t:
        with pytest.raises(RunFailed, match="a RunState as input is refused"):
            await t.run(with_state, "begin")


@function_tool(failure_error_function=None)
async def nested(ctx: RunContextWrapper[Bank], what: str) -> str:
    """Tries to run another one inside a tool."""
    try:
        await runner.run(clerk, what)
    except ScopeError:
        return "refused"
    return "done"


def once(items: Items) -> Said:
    return call_of("nested") if turns(items) == 0 else " | ".join(told(items))


def call_of(name: str) -> Said:
    return [call(name, what="x")]


outer = Agent[Bank](name="outer", model=Talking(once), tools=[nested])


@app.agent()
async def outside(run: Run[Bank], prompt: str) -> str:
    """An agent that is made in the function: its tools are recorded, too."""
    result = await runner.run(outer, prompt, context=run.deps)
    return str(result.final_output)


async def test_it_runs_in_the_code_of_an_agent_alone() -> None:
    with pytest.raises(ScopeError, match="outside the code of an agent"):
        await runner.run(clerk, "begin")
    async with lab(app, deps=Bank()) as t:
        assert await t.run(outside, "begin") == "begin | refused"


async def test_tools_of_runs_are_for_runs() -> None:
    with pytest.raises(UserError, match="no run is calling"):
        operation()
    one = Agent[Bank](name="one", model=Talking(lambda items: [call("look", what="x")]), tools=[*toolset(desk.look)])
    with pytest.raises(UserError, match="only by an agent in a run"):
        await Runner.run(one, "begin", run_config=RunConfig(tracing_disabled=True))


def test_two_agents_of_one_name_are_refused() -> None:
    with pytest.raises(Refused, match="two agents of one name"):
        DurableRunner(Outlive(), clerk, Agent[Bank](name="clerk"))


async def test_what_it_spent_is_known() -> None:
    async with lab(app, deps=Bank()) as t:
        run = await t.start(talk, "begin")
        for _ in range(2):
            await t.advance(seconds=1)
            await t.approve("clerk.pay")
        await run.result()
        (one,) = await costs.spent(_entries(await whole_log(t._world, RunId(run.id))))
    assert (one.name, one.requests, one.input_tokens, one.output_tokens) == ("clerk.model", 4, 12, 8)


async def _entries(log: list[Entry]) -> AsyncIterator[Entry]:
    for one in log:
        yield one
