"""The SDKs of real providers against a server that fails: what is asked again, when, and what it is said to cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from outlive import Agent as Registered
from outlive import Operation, Outlive
from outlive.errors import RunFailed, UnknownRun
from outlive.harness import units
from outlive.model.ids import RunId
from outlive.pydantic_ai import Compact, agent, spent, toolset
from outlive.testing import Fault as StoreFault
from outlive.testing import Lab, lab
from outlive.testing.audit import whole_log
from tests.pydantic_ai.provider import INPUT, OUTPUT, Fault, ok, provider


def openai(url: str) -> Model:
    return OpenAIChatModel("gpt-5", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))


def anthropic(url: str) -> Model:
    return AnthropicModel("claude-opus-5", provider=AnthropicProvider(base_url=url, api_key="none"))


EACH = pytest.mark.parametrize("model", [openai, anthropic])


def script(messages: list[dict[str, Any]]) -> str | dict[str, dict[str, Any]]:
    """Two calls of a tool, then what they gave."""
    if "Sum up" in json.dumps(messages[-1]):
        return "twice two is four"
    rounds = sum(one["role"] == "assistant" for one in messages)
    return {"double": {"number": rounds + 1}} if rounds < 2 else f"done after {rounds}"


async def double(op: Operation, number: int) -> int:
    return number * 2


def registered(model: Model, **settings: Any) -> tuple[Outlive, Registered[str, str]]:
    app: Outlive = Outlive()
    tool = app.tool(effect="idempotent")(double)
    return app, agent(app, Agent(model, name="doubler", toolsets=[toolset(tool)]), **settings)


async def entries(t: Lab, run: Any, kind: str) -> list[str]:
    return [line for line in await t.log(run) if line.split()[2] == kind]


@EACH
async def test_an_agent_asks_once_for_each_turn(model: Callable[[str], Model]) -> None:
    async with provider(script) as them:
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None) as t:
            assert await t.run(doubler, "go") == "done after 2"
    assert len(them.asked) == 3


@EACH
async def test_who_is_too_busy_is_asked_again_when_he_says(model: Callable[[str], Model]) -> None:
    async with provider(script) as them:
        them.faults = [Fault(429, {"retry-after": "70"}), Fault(429, {"retry-after": "7"})]
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "go")
            await t.advance(seconds=69)
            assert (len(them.asked), await t.status(run)) == (1, "waiting")
            await t.advance(seconds=2)
            assert (len(them.asked), await t.status(run)) == (2, "waiting")
            await t.advance(seconds=8)
            assert await run.result() == "done after 2"
            assert not await entries(t, run, "unknown"), "a refused request costs nothing"
    assert (len(them.asked), them.charged) == (5, 3)


@EACH
async def test_an_answer_that_is_lost_is_possibly_paid_for(model: Callable[[str], Model]) -> None:
    async with provider(script) as them:
        them.faults = [Fault(drop=True)]
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "go")
            assert await run.result() == "done after 2"
            assert len(await entries(t, run, "unknown")) == 1
    assert them.charged == 4


@EACH
async def test_a_failing_provider_is_given_time(model: Callable[[str], Model]) -> None:
    async with provider(script) as them:
        them.faults = [Fault(500), Fault(503), Fault(529)]
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None) as t:
            assert await t.run(doubler, "go") == "done after 2"
    assert len(them.asked) == 6


@EACH
async def test_a_refusal_is_final(model: Callable[[str], Model]) -> None:
    async with provider(script) as them:
        them.faults = [Fault(401, body={"error": {"message": "no such key", "type": "authentication_error"}})]
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None) as t:
            with pytest.raises(RunFailed, match="no such key"):
                await t.run(doubler, "go")
    assert len(them.asked) == 1


@EACH
async def test_usage_and_cost_are_recorded(model: Callable[[str], Model]) -> None:
    async with provider(script) as them:
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "go")
            await run.result()
            rows = [json.loads(one.outcome or "{}") for one in await t.operations(run) if one.tool == "doubler.model"]
            turns = [one.payload or "" for one in await whole_log(t._world, RunId(run.id)) if one.kind == "turn"]
    assert all("outlive:response" in one and "content" not in one for one in turns[2:]), "a response is stored once"
    used = [one["response"]["usage"] for one in rows]
    assert [(one["input_tokens"], one["output_tokens"]) for one in used] == [(INPUT, OUTPUT)] * them.charged
    assert all(float(one["response"]["usage"]["cost"]) > 0 for one in rows)


@EACH
@pytest.mark.parametrize("stream", [False, True])
async def test_a_slow_answer_is_waited_for(model: Callable[[str], Model], stream: bool) -> None:
    def one_text(messages: list[dict[str, Any]]) -> str:
        return "word by word"

    async with provider(one_text) as them:
        them.faults = [Fault(stall=True)]
        app, doubler = registered(model(them.url), stream=stream)
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "go")
            waiting = asyncio.ensure_future(run.result())
            while not them.charged:
                await asyncio.to_thread(int)
            assert not waiting.done()
            them.more.set()
            assert (await waiting).strip() == "word by word"
    assert them.charged == 1


@EACH
async def test_one_that_never_comes_to_its_end_is_asked_for_again_and_counted(
    model: Callable[[str], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "MODEL_TIMEOUT", timedelta(seconds=4))
    async with provider(script) as them:
        them.faults = [Fault(stall=True)]
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "go")
            assert await run.result() == "done after 2"
            app.use(t._world.store)
            (one,) = await spent(app, run.id)
        them.more.set()
    assert (one.requests, one.lost, them.charged) == (3, 1, 4)


TOO_LONG = {
    "openai": {"message": "This model's maximum context length is 8 tokens", "code": "context_length_exceeded"},
    "anthropic": {"message": "prompt is too long: 9 tokens > 8 maximum", "type": "invalid_request_error"},
}


@EACH
async def test_a_context_that_is_too_long_is_summed_up_once_then_blocks(model: Callable[[str], Model]) -> None:
    """As each provider says it."""
    says = TOO_LONG[model.__name__]
    async with provider(script) as them:
        app, doubler = registered(model(them.url), compact=Compact(keep=1))
        async with lab(app, deps=None) as t:
            them.faults = [ok, ok, Fault(400, body={"type": "error", "error": says})]
            assert await t.run(doubler, "go") == "done after 2"
            assert len(them.asked) == 6, "of the two turns before, one is in the summary"
            assert "twice two is four" in json.dumps(them.asked[4])
            again = Fault(400, body={"type": "error", "error": says})
            them.faults = [ok, ok, again, ok, again]
            run = await t.start(doubler, "go", id="two")
            await t.advance(seconds=1)
            assert (await t.status(run), len(them.asked)) == ("blocked", 11)
            row = await t._world.row(RunId(run.id))
            last = (await whole_log(t._world, RunId(run.id)))[-1].body
    assert row.reason == "context too long"
    assert f"{INPUT} tokens" in last
    assert says["message"].partition(":")[0].partition("'")[0] in last


async def test_what_was_spent_is_summed_up_with_what_was_lost() -> None:
    async with provider(script) as them:
        them.faults = [Fault(drop=True), Fault(429, {"retry-after": "1"})]
        app, doubler = registered(openai(them.url))
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "go")
            await run.result()
            app.use(t._world.store)
            (one,) = await spent(app, run.id)
            with pytest.raises(UnknownRun):
                await spent(app, "nobody")
    assert (one.name, one.requests, one.lost, one.unpriced) == ("doubler.model", 3, 1, 0)
    assert (one.input_tokens, one.output_tokens) == (3 * INPUT, 3 * OUTPUT)
    assert one.requests + one.lost == them.charged
    assert one.cost > 0


async def test_an_answer_that_was_lost_with_its_worker_is_counted_too() -> None:
    async with provider(script) as them:
        app, doubler = registered(openai(them.url))
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "go")
            t.crash(StoreFault("die", 3, "append"))
            await run.result()
            app.use(t._world.store)
            (one,) = await spent(app, run.id)
    assert (one.requests, one.lost) == (3, 1)
    assert one.requests + one.lost == them.charged


async def test_followers_see_what_a_model_is_writing() -> None:
    def one_text(messages: list[dict[str, Any]]) -> str:
        return "a long answer word by word"

    async with provider(one_text) as them:
        app, doubler = registered(openai(them.url), stream=True)
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "go")
            assert (await run.result()).strip() == "a long answer word by word"
    assert them.asked[0]["stream"] is True
