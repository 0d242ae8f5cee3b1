"""The provider's client against a server that fails: what is asked again, when, and what it is said to cost."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent, Model, ModelRetrySettings, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel
from openai import AsyncOpenAI

from outlive import Agent as Registered
from outlive import Operation, Outlive
from outlive.app.decide import retry
from outlive.errors import RunFailed
from outlive.model.ids import RunId
from outlive.openai_agents import agent, spent, toolset
from outlive.testing import Lab, lab
from outlive.testing.audit import whole_log
from tests.pydantic_ai.provider import INPUT, OUTPUT, Fault, ok, provider


def chat(url: str) -> Model:
    return OpenAIChatCompletionsModel("gpt-5", AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))


def responses(url: str) -> Model:
    return OpenAIResponsesModel("gpt-5", AsyncOpenAI(base_url=f"{url}/v1", api_key="none"))


EACH = pytest.mark.parametrize("model", [chat, responses])


def script(messages: list[dict[str, Any]]) -> str | dict[str, dict[str, Any]]:
    """Two calls of a tool, then what they gave."""
    rounds = sum(one.get("role") == "assistant" or one.get("type") == "function_call" for one in messages)
    return {"double": {"number": rounds + 1}} if rounds < 2 else f"done after {rounds}"


async def double(op: Operation, number: int) -> int:
    return number * 2


def registered(model: Model, **settings: Any) -> tuple[Outlive, Registered[str, str]]:
    app: Outlive = Outlive()
    tool = app.tool(effect="idempotent")(double)
    one = Agent[None](name="doubler", model=model, tools=toolset(tool), **settings)
    return app, agent(app, one)


async def entries(t: Lab, run: Any, kind: str) -> list[str]:
    return [line for line in await t.log(run) if line.split()[2] == kind]


@EACH
async def test_an_agent_asks_once_for_each_turn_and_nobody_else(
    model: Callable[[str], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is traced, with a key for it neither: the only host that is spoken to is the provider's."""
    monkeypatch.setitem(os.environ, "OPENAI_API_KEY", "sk-none")
    hosts: list[str] = []
    resolve = socket.getaddrinfo

    def resolving(host: Any, *rest: Any, **more: Any) -> Any:
        hosts.append(str(host))
        return resolve(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolving)
    async with provider(script) as them:
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None, evict=True) as t:
            assert await t.run(doubler, "go") == "done after 2"
    from agents.tracing import get_trace_provider

    get_trace_provider().force_flush()
    assert len(them.asked) == 3
    assert set(hosts) <= {"127.0.0.1"}


@EACH
async def test_who_is_too_busy_is_asked_again_when_he_says(model: Callable[[str], Model]) -> None:
    """Also by an agent whose own settings ask for retries: those are the run's."""
    retries = ModelSettings(retry=ModelRetrySettings(max_retries=5, policy=lambda context: True))
    async with provider(script) as them:
        them.faults = [Fault(429, {"retry-after": "70"}), Fault(429, {"retry-after": "7"})]
        app, doubler = registered(model(them.url), model_settings=retries)
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
async def test_a_context_that_is_too_long_blocks_until_somebody_says_again(model: Callable[[str], Model]) -> None:
    says = {"message": "This model's maximum context length is 8 tokens", "code": "context_length_exceeded"}
    async with provider(script) as them:
        them.faults = [ok, Fault(400, body={"error": says})]
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "go")
            await t.advance(seconds=1)
            row = await t._world.row(RunId(run.id))
            assert (row.status, row.reason, len(them.asked)) == ("blocked", "context too long", 2)
            assert "maximum context length" in (await whole_log(t._world, row.id))[-1].body
            await retry(t._control(), row.tenant, run.id, who="ada", why="a larger model is there")
            assert await run.result() == "done after 2"


@EACH
async def test_a_response_is_stored_once_with_what_it_cost(model: Callable[[str], Model]) -> None:
    async with provider(script) as them:
        them.faults = [Fault(drop=True)]
        app, doubler = registered(model(them.url))
        async with lab(app, deps=None) as t:
            run = await t.start(doubler, "a prompt like no other")
            await run.result()
            log = await whole_log(t._world, RunId(run.id))
            app.use(t._world.store)
            (one,) = await spent(app, run.id)
    turns = [entry.payload or "" for entry in log if entry.kind == "turn"]
    assert all("outlive:response" in one and "outlive:returned" in one for one in turns[1:])
    assert json.dumps([entry.payload for entry in log]).count('\\"arguments\\":') == 2, "each call is stored once"
    assert (one.name, one.requests, one.lost, one.unpriced) == ("doubler.model", 3, 1, 0)
    assert (one.input_tokens, one.output_tokens) == (3 * INPUT, 3 * OUTPUT)
    assert one.requests + one.lost == them.charged
    assert one.cost > 0
