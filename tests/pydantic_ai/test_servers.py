"""Tools of MCP servers in an agent of pydantic-ai: operations, whatever the server says, never sent again blindly."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

import outlive
from outlive import Outlive
from outlive.app import operate
from outlive.errors import Refused
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.operation import OperationRow
from outlive.pydantic_ai import agent
from tests.mcp.waiting import Desk, until
from tests.pydantic_ai import desk as clerks


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    clerks.asked.clear()
    with Desk(tmp_path / "desk", http=getattr(request, "param", "stdio") == "http") as one:
        yield one


BOTH = pytest.mark.parametrize("desk", ["stdio", "http"], indirect=True)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@asynccontextmanager
async def working(
    store: str, desk: Desk, **more: Any
) -> AsyncIterator[tuple[Outlive[None], outlive.Agent[str, str]]]:  # fmt: skip
    app: Outlive[None] = Outlive(store)
    clerk = clerks.registered(app, desk.place, desk.url, **more)
    async with app, app.worker():
        yield app, clerk


async def said(app: Outlive[None], clerk: outlive.Agent[str, str], *turns: list[Any]) -> str:
    return await asyncio.wait_for((await app.start(clerk, json.dumps(turns), id="r")).result(), 60)


async def operations(app: Outlive[None]) -> dict[str, OperationRow]:
    rows = await app.opened.operations(DEFAULT_TENANT, RunId("r"))
    return {row.tool: row for row in rows if row.tool != "clerk.model"}


async def blocked(app: Outlive[None]) -> OperationRow:
    async def found() -> OperationRow | None:
        row = await app.opened.run(DEFAULT_TENANT, RunId("r"))
        return list((await operations(app)).values())[-1] if row is not None and row.status == "blocked" else None

    return await until(found)


CALLS = [["search", {"query": "x"}], ["label", {"invoice": "I"}], ["refund", {"invoice": "I", "cents": 5}]]


@BOTH
async def test_its_calls_are_operations_that_are_external_unless_declared(
    desk: Desk, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "outlive.pydantic_ai")
    async with working(store, desk, effects={"search": "read"}) as (app, clerk):
        told = await said(app, clerk, CALLS)
        assert "I labelled" in told
        rows = await operations(app)
    assert {name: (row.effect, row.status) for name, row in rows.items()} == {
        "clerk.label": ("external", "succeeded"), "clerk.refund": ("external", "succeeded"),
    }  # fmt: skip
    assert sorted(desk.acts()) == ["label I", "refund I 5", "search x"]
    assert {rows["clerk.label"].key, rows["clerk.refund"].key} < set(desk.keys())
    assert [one.message for one in caplog.records if "nobody declared" in one.message] == [
        "its server calls label idempotent; nobody declared that, it is external"
    ]


async def test_hints_count_when_the_operator_believes_them(desk: Desk, store: str) -> None:
    async with working(store, desk, believe_hints=True, effects={"refund": "idempotent"}) as (app, clerk):
        await said(app, clerk, CALLS)
        assert {name: row.effect for name, row in (await operations(app)).items()} == {
            "clerk.label": "idempotent", "clerk.refund": "idempotent",
        }  # fmt: skip
    assert sorted(desk.acts()) == ["label I", "refund I 5", "search x"]


@BOTH
async def test_a_connection_that_breaks_amid_an_external_call_is_doubt_and_not_for_the_model(
    desk: Desk, store: str
) -> None:
    (desk.place / "die").touch()
    async with working(store, desk) as (app, clerk):
        await app.start(clerk, json.dumps([[CALLS[2]]]), id="r")
        operation = await blocked(app)
        assert (operation.tool, operation.effect, operation.status) == ("clerk.refund", "external", "unknown")
        assert desk.acts() == ["refund I 5"]
        assert clerks.asked == [0], "the model was told of something that nobody knows"
        (desk.place / "die").unlink()
        if desk.url:
            desk.listen()
        await operate.resolve(
            app.opened, cast("Outlive[object]", app), "default", "r", operation.id, "happened", who="test",
            why="it is in the books", outcome='{"invoice": "I", "cents": 5}',
        )  # fmt: skip
        told = await asyncio.wait_for(app.handle(clerk, "r").result(), 60)
        assert told == "ToolReturnPart: {'invoice': 'I', 'cents': 5}"
    assert desk.acts() == ["refund I 5"]


async def test_a_connection_that_breaks_amid_a_read_call_is_no_end_of_it(desk: Desk, store: str) -> None:
    (desk.place / "die").touch()
    async with working(store, desk, effects={"search": "read"}) as (app, clerk):
        handle = await app.start(clerk, json.dumps([[CALLS[0]]]), id="r")
        await until(desk.acted)
        (desk.place / "die").unlink()
        assert "x-1" in await asyncio.wait_for(handle.result(), 60)
        assert not await operations(app)


async def test_an_answer_that_it_failed_is_told_to_the_model_and_recorded(desk: Desk, store: str) -> None:
    async with working(store, desk) as (app, clerk):
        told = await said(app, clerk, [["refuse", {"why": "closed"}]], [["refund", {"invoice": "I"}]])
        assert told.count("Error executing tool") == 2
        assert {name: row.status for name, row in (await operations(app)).items()} == {
            "clerk.refuse": "raised", "clerk.refund": "raised",
        }  # fmt: skip
    assert desk.acts() == ["refuse closed"]


async def test_names_are_refused_only_where_all_are_known(desk: Desk) -> None:
    app: Outlive[None] = Outlive()
    clerks.registered(app, desk.place, effects={"what_a_server_may_have": "read"})
    plain: Agent[None, str] = Agent(TestModel(), name="plain")
    with pytest.raises(Refused, match="it has no such tool"):
        agent(app, plain, effects={"none": "read"})
    assert app.registry.tool("clerk.anything") is not None
    request = app.registry.tool("clerk.model")
    assert request is not None
    assert request.policy.harmless, "that is a request to its model"
    assert app.registry.tool("plain.anything") is None


@BOTH
async def test_a_server_that_was_killed_between_two_turns_is_asked_at_most_once(
    desk: Desk, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def between() -> None:
        desk.kill()
        while not desk.is_dead():
            pass
        if desk.url:
            desk.listen()

    monkeypatch.setitem(clerks.before, 1, between)
    async with working(store, desk, effects={"search": "read"}) as (app, clerk):
        await app.start(clerk, json.dumps([[CALLS[0]], [CALLS[2]]]), id="r")

        async def stands() -> str | None:
            row = await app.opened.run(DEFAULT_TENANT, RunId("r"))
            return row.status if row is not None and row.status in ("blocked", "succeeded") else None

        # Over HTTP a request that nobody takes is told from one that was sent; over stdio it may be doubt.
        status = await until(stands)
        assert (status, (await operations(app))["clerk.refund"].status) in (
            [("succeeded", "succeeded")] if desk.url else [("succeeded", "succeeded"), ("blocked", "unknown")]
        )
    assert desk.acts() in (["search x"], ["search x", "refund I 5"])
