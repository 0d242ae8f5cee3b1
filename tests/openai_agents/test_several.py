"""Several agents of the SDK together: handing over, one as a tool of another, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    Handoff,
    HostedMCPTool,
    InputGuardrail,
    ModelSettings,
    RunConfig,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.tool import ShellTool

from outlive import Operation, Outlive, Run
from outlive.errors import DuplicateName, Refused, RunFailed
from outlive.openai_agents import DurableRunner, agent, tool_of, toolset
from outlive.testing import lab
from tests.openai_agents.talking import Items, Said, Talking, call, told, turns, whole

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
ran: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()


@function_tool
def check(what: str) -> str:
    """Check it."""
    ran[what] += 1
    return f"checked {what}"


def triage(items: Items) -> Said:
    return [call("check", what="t")] if turns(items) == 0 else [call("transfer_to_billing")]


def billing(items: Items) -> Said:
    whole(items)
    return [call("check", what="b")] if turns(items) == 2 else " | ".join(told(items))


def handing_over() -> tuple[Outlive, Any]:
    app: Outlive = Outlive()
    other = Agent[None](name="billing", model=Talking(billing), tools=[check])
    first = Agent[None](name="triage", model=Talking(triage), tools=[check], handoffs=[handoff(other)])
    other.handoffs = [first]
    return app, agent(app, first, effects={"check": "read"})


@BOTH
async def test_who_was_handed_over_to_goes_on_whatever_worker_it_is(store: str) -> None:
    app, registered = handing_over()
    for evict in (False, True):
        async with lab(app, deps=None, store=store, evict=evict) as t:
            run = await t.start(registered, "begin")
            assert await run.result() == 'begin | checked t | {"assistant": "billing"} | checked b'
            names = [one.tool for one in await t.operations(run)]
            log = "\n".join(await t.log(run))
        assert names == ["triage.model"] * 2 + ["triage.model.billing"] * 2
        assert "triage.check" in log
        assert "triage.billing.check" in log
    assert ran["t"] <= 2 >= ran["b"], "a call was repeated"


filtering_app: Outlive = Outlive()
filtered = Agent[None](name="billing", model=Talking(lambda items: f"sees {len(items)}"), tools=[check])
filtering = Agent[None](
    name="triage", model=Talking(triage), tools=[check],
    handoffs=[handoff(filtered, input_filter=lambda data: data.clone(input_history="all that matters"))],
)  # fmt: skip
filtering_runner = DurableRunner(filtering_app, filtering, effects={"check": "read"})


@filtering_app.agent()
async def filters(run: Run, prompt: str) -> str:
    """Hands over less than there is, which one run of the SDK's runner can."""
    result = await filtering_runner.run(filtering, prompt)
    assert result.last_agent is filtered
    return f"{result.final_output} of {result.input}"


async def test_a_runner_hands_over_what_a_filter_leaves() -> None:
    for evict in (False, True):
        async with lab(filtering_app, deps=None, evict=evict) as t:
            run = await t.start(filters, "begin")
            assert await run.result() == "sees 5 of all that matters"
            names = [one.tool for one in await t.operations(run)]
        assert names == ["triage.model", "triage.model", "triage.model.billing"]
    known = filtering_app.registry.tools
    assert [known[one].policy.effect for one in ("triage.check", "triage.billing.check")] == ["read", "read"]


def inside(items: Items) -> Said:
    return [call("check", what="i"), call("check", what="j")] if turns(items) == 0 else " & ".join(told(items))


def outside(items: Items) -> Said:
    if turns(items) == 0:
        return [call("helper", input="x"), call("helper", input="y")]
    return " | ".join(told(items))


@BOTH
async def test_an_agent_is_a_tool_of_another_in_the_same_log(store: str) -> None:
    app: Outlive = Outlive()
    helper = agent(app, Agent[None](name="helper", model=Talking(inside), tools=[check]), effects={"check": "read"})
    registered = agent(app, Agent[None](name="boss", model=Talking(outside), tools=[tool_of(helper)]))
    for evict in (False, True):
        async with lab(app, deps=None, store=store, evict=evict) as t:
            run = await t.start(registered, "begin")
            assert await run.result() == "begin | x & checked i & checked j | y & checked i & checked j"
            names = [one.tool for one in await t.operations(run)]
        assert Counter(names) == {"boss.model": 2, "helper.model": 4}


async def test_a_guardrail_looks_at_the_first_turn_and_may_end_the_run() -> None:
    async def look(ctx: Any, one: Any, given: Any) -> GuardrailFunctionOutput:
        ran["guardrail"] += 1
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="evil" in str(given))

    app: Outlive = Outlive()
    guarded = Agent[None](
        name="guarded", model=Talking(inside), tools=[check], input_guardrails=[InputGuardrail(look)]
    )  # fmt: skip
    registered = agent(app, guarded, effects={"check": "read"})
    async with lab(app, deps=None) as t:
        assert await t.run(registered, "begin") == "begin & checked i & checked j"
        assert ran["guardrail"] == 1
        with pytest.raises(RunFailed, match="tripwire"):
            await t.run(registered, "evil")


async def test_a_forced_choice_of_tools_is_reset_over_turns() -> None:
    """Else an agent that must call a tool would call one for ever."""
    model = Talking(inside)
    app: Outlive = Outlive()
    forced = Agent[None](
        name="forced", model=model, tools=[check], model_settings=ModelSettings(tool_choice="required")
    )  # fmt: skip
    registered = agent(app, forced, effects={"check": "read"})
    async with lab(app, deps=None, evict=True) as t:
        assert await t.run(registered, "begin") == "begin & checked i & checked j"
    assert [one.tool_choice for one in model.settings] == ["required", None]


async def test_turns_are_bounded_over_the_whole_run() -> None:
    app: Outlive = Outlive()
    endless = Agent[None](name="endless", model=Talking(lambda items: [call("check", what="x")]), tools=[check])
    registered = agent(app, endless, effects={"check": "read"}, max_turns=3)
    async with lab(app, deps=None, evict=True) as t:
        run = await t.start(registered, "begin")
        with pytest.raises(RunFailed, match="Max turns"):
            await run.result()
        assert [one.tool for one in await t.operations(run)] == ["endless.model"] * 3


async def note(op: Operation, number: int) -> str:
    """Note a number."""
    return f"noted {number}"


class Inventive(Agent[None]):
    """Has tools that it does not say."""

    async def get_all_tools(self, run_context: Any) -> list[Any]:
        """See the base."""
        return [check]


def refusals() -> Iterator[tuple[str, Agent[None], dict[str, Any]]]:
    """What cannot be registered, and why."""
    inner = Agent[None](name="inner", model=Talking(inside))
    of_app = Outlive[None]().tool(effect="read")(note)
    yield "say tool_of", Agent[None](name="one", tools=[inner.as_tool("inner", "")]), {}
    yield "acts here", Agent[None](name="one", tools=[ShellTool(executor=lambda request: "")]), {}
    asking: Any = {"type": "mcp", "server_label": "x", "server_url": "http://x", "require_approval": "always"}
    yield "require_approval='never'", Agent[None](name="one", tools=[HostedMCPTool(tool_config=asking)]), {}
    yield "no such tool", Agent[None](name="one"), {"effects": {"crawl": "read"}}
    yield "registered with its effect", Agent[None](name="one", tools=toolset(of_app)), {"effects": {"note": "read"}}
    yield "say result=", Agent[None](name="one", handoffs=[Agent[None](name="two", output_type=int)]), {}
    yield "two agents of one name", Agent[None](name="one", handoffs=[Agent[None](name="one")]), {}
    yield "own tools would not be recorded", Inventive(name="one"), {}
    less = handoff(inner, input_filter=lambda data: data)
    yield "sees it", Agent[None](name="one", handoffs=[less]), {}
    unsaid: Any = Handoff("go", "", {}, cast(Any, lambda ctx, text: inner), "inner")
    yield "could not find whose turn", Agent[None](name="one", handoffs=[unsaid]), {}
    yield "sees it", Agent[None](name="one"), {"run_config": RunConfig(nest_handoff_history=True)}


@pytest.mark.parametrize(("why", "one", "settings"), list(refusals()))
def test_what_cannot_be_registered_is_refused(why: str, one: Agent[None], settings: dict[str, Any]) -> None:
    with pytest.raises(Refused, match=why):
        agent(Outlive(), one, **settings)


def test_what_the_provider_does_is_registered_and_a_name_is_given_once() -> None:
    app: Outlive = Outlive()
    agent(app, Agent[None](name="one", tools=[WebSearchTool()]))
    with pytest.raises(DuplicateName):
        agent(app, Agent[None](name="one"))
