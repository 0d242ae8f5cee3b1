"""Tools of MCP servers as operations: real servers over both transports, and what they have done counted outside."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from outlive import Agent, Handle, Outlive
from outlive.errors import Refused
from outlive.mcp import Http, Stdio, ToolError, ToolServer
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.operation import OperationRow
from outlive.testing import lab
from tests.mcp import caller
from tests.mcp.caller import TOOLS, Calls
from tests.mcp.gate import Verdict, gate
from tests.mcp.waiting import Desk, until

SOON = timedelta(seconds=1)


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A server: over stdio the worker starts it, over HTTP it listens."""
    with Desk(tmp_path / "desk", http=getattr(request, "param", "stdio") == "http") as one:
        yield one


BOTH = pytest.mark.parametrize("desk", ["stdio", "http"], indirect=True)
HTTP = pytest.mark.parametrize("desk", ["http"], indirect=True)


@asynccontextmanager
async def working(store: str, desk: Desk, **more: Any) -> AsyncIterator[Outlive[None]]:
    app = Outlive(store)
    caller.declared(app, desk.place, desk.url, **more)
    async with app, app.worker():
        yield app


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def agent(app: Outlive[None]) -> Agent[Any, list[str]]:
    return cast("Agent[Any, list[str]]", app.registry.agents["calls"])


async def made(app: Outlive[None], asked: Calls, id: str = "r") -> Handle[list[str]]:
    return await app.start(agent(app), asked, id=id)


async def result(app: Outlive[None], *asked: tuple[str, dict[str, Any]], id: str = "r") -> list[str]:
    return await asyncio.wait_for((await made(app, list(asked), id)).result(), 60)


async def operations(app: Outlive[None], id: str = "r") -> list[OperationRow]:
    return list(await app.opened.operations(DEFAULT_TENANT, RunId(id)))


async def blocked(app: Outlive[None], id: str = "r") -> OperationRow:
    """The one operation in doubt, once the run stands still for it."""

    async def found() -> OperationRow | None:
        row = await app.opened.run(DEFAULT_TENANT, RunId(id))
        return (await operations(app, id))[-1] if row is not None and row.status == "blocked" else None

    return await until(found)


@BOTH
async def test_calls_are_operations_with_the_effect_that_is_declared(
    desk: Desk, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "outlive.mcp")
    async with working(store, desk) as app:
        given = await result(
            app, ("search", {"query": "late"}), ("refund", {"invoice": "I", "cents": 5}), ("label", {"invoice": "I"})
        )
        assert given[0] == "late-1\nlate-2"
        assert json.loads(given[1]) == {"invoice": "I", "cents": 5}
        rows = {row.tool: row for row in await operations(app)}
    # The server calls `label` idempotent; nobody here has.
    assert {name: (row.effect, row.status) for name, row in rows.items()} == {
        "desk.refund": ("external", "succeeded"), "desk.label": ("external", "succeeded"),
    }  # fmt: skip
    assert desk.acts() == ["search late", "refund I 5", "label I"]
    assert desk.keys()[1:] == [rows["desk.refund"].key, rows["desk.label"].key]
    told = [one.message for one in caplog.records if "nobody declared" in one.message]
    assert len(told) == 1
    assert "{'label': 'idempotent'}" in told[0]


async def test_hints_are_believed_when_the_operator_says_so(desk: Desk, tmp_path: Path) -> None:
    listing = tmp_path / "desk.json"
    await ToolServer(Outlive(), "desk", caller.at(desk.place)).record(listing)

    def effects(**said: Any) -> dict[str, str]:
        server = ToolServer(Outlive(), "desk", caller.at(desk.place))
        return {name: tool.policy.effect for name, tool in server.tools(listing, **said).items()}

    names = ["label", "picture", "refund", "refuse", "search", "whoami"]
    assert effects() == dict.fromkeys(names, "external")
    assert effects(effects={"search": "read"}) == {**dict.fromkeys(names, "external"), "search": "read"}
    believed = {**dict.fromkeys(names, "external"), "search": "read", "label": "idempotent"}
    assert effects(believe_hints=True) == believed
    # What the code says counts more than what the server says.
    assert effects(believe_hints=True, effects={"label": "external"}) == {**believed, "label": "external"}
    with pytest.raises(Refused, match="it has no such tool"):
        effects(effects={"serach": "read"})
    assert not desk.acts()


@pytest.mark.parametrize("believe", [True, False])
async def test_a_server_that_dies_amid_a_call_is_asked_again_only_if_it_may_be(
    desk: Desk, store: str, tmp_path: Path, believe: bool
) -> None:
    listing = tmp_path / "desk.json"
    app = Outlive(store)
    server = ToolServer(app, "desk", caller.at(desk.place))
    await server.record(listing)
    TOOLS.clear()
    TOOLS.update(server.tools(listing, believe_hints=believe))
    app.agent(name="calls")(caller.calls)
    (desk.place / "die").touch()
    async with app, app.worker():
        await made(app, [("label", {"invoice": "I"})])
        await until(desk.acted)
        (desk.place / "die").unlink()
        if believe:
            assert await app.handle(agent(app), "r").result() == ["I labelled"]
            assert len(desk.acts()) >= 2
            assert len(set(desk.keys())) == 1
        else:
            assert (await blocked(app)).status == "unknown"
            assert desk.acts() == ["label I"]


@BOTH
async def test_a_server_that_dies_amid_an_external_call_leaves_it_unknown(desk: Desk, store: str) -> None:
    async with working(store, desk) as app:
        assert await result(app, ("search", {"query": "x"}), id="before") == ["x-1\nx-2"]
        (desk.place / "die").touch()
        await made(app, [("refund", {"invoice": "I", "cents": 5}), ("search", {"query": "y"})])
        operation = await blocked(app)
        assert (operation.tool, operation.status, operation.attempt) == ("desk.refund", "unknown", 1)
        (desk.place / "die").unlink()
    assert desk.acts() == ["search x", "refund I 5"]


@BOTH
async def test_a_server_that_was_killed_between_two_calls_is_reached_anew(desk: Desk, store: str) -> None:
    async with working(store, desk) as app:
        assert await result(app, ("search", {"query": "x"}), id="before") == ["x-1\nx-2"]
        desk.kill()
        # Before its end is seen it can be written to, and whether it still read that nobody knows.
        await until(desk.is_gone)
        if desk.url:
            handle = await made(app, [("refund", {"invoice": "I", "cents": 5})])
            # Nobody listens: that is known not to have been sent, and tried again.
            await until(lambda: tried(app))
            desk.listen()
            assert len(await asyncio.wait_for(handle.result(), 60)) == 1
        else:
            assert len(await result(app, ("refund", {"invoice": "I", "cents": 5}))) == 1
        [operation] = await operations(app)
        assert operation.status == "succeeded"
    assert desk.acts() == ["search x", "refund I 5"]


async def tried(app: Outlive[None]) -> bool | None:
    rows = await operations(app)
    return True if rows and rows[-1].status == "retrying" else None


@HTTP
async def test_one_call_that_is_cut_off_ends_no_other_on_the_same_connection(desk: Desk, store: str) -> None:
    (desk.place / "wait").touch()

    async def acted() -> None:
        await until(lambda: desk.acted(2))

    async with gate(desk.url, lambda body: "cut" if b"cut" in body else "pass", acted) as url:
        app = Outlive(store)
        caller.declared(app, desk.place, url)
        async with app, app.worker():
            slow = await made(app, [("refund", {"invoice": "slow", "cents": 1})], "slow")
            await until(desk.acted)
            await made(app, [("refund", {"invoice": "cut", "cents": 1})], "cut")
            assert (await blocked(app, "cut")).status == "unknown"
            (desk.place / "wait").unlink()
            assert len(await asyncio.wait_for(slow.result(), 60)) == 1
            assert await result(app, ("search", {"query": "x"}), id="after") == ["x-1\nx-2"]
    assert sorted(desk.acts()) == ["refund cut 1", "refund slow 1", "search x"]


@HTTP
@pytest.mark.parametrize("verdict", ["401", "429"])
async def test_a_request_that_was_turned_away_is_made_again(desk: Desk, store: str, verdict: Verdict) -> None:
    left = [verdict, verdict]
    async with gate(desk.url, lambda body: left.pop() if b"tools/call" in body and left else "pass") as url:
        app = Outlive(store)
        caller.declared(app, desk.place, url)
        async with app, app.worker():
            assert len(await result(app, ("refund", {"invoice": "I", "cents": 5}))) == 1
            [operation] = await operations(app)
            assert (operation.status, operation.attempt) == ("succeeded", 3)
    assert desk.acts() == ["refund I 5"]


async def test_an_answer_that_it_failed_is_an_outcome(desk: Desk, store: str) -> None:
    asked: Calls = [("refuse", {"why": "closed"}), ("refund", {"invoice": "I"}), ("quick", {})]
    async with working(store, desk) as app:
        given = await result(app, *asked)
        assert given[0] == "failed: Error executing tool refuse"
        assert given[1].startswith("failed: Error executing tool refund: 1 validation error")
        assert given[2] == "failed: Unknown tool: none"
        assert [row.status for row in await operations(app)] == ["raised"] * 3
    assert desk.acts() == ["refuse closed"]


async def test_a_call_that_takes_too_long_is_unknown_and_one_that_is_cancelled_is_waited_for(
    desk: Desk, store: str
) -> None:
    (desk.place / "wait").touch()
    app = Outlive(store)
    server = ToolServer(app, "desk", caller.at(desk.place))
    TOOLS.clear()
    TOOLS.update(refund=server.tool("refund", timeout=SOON), label=server.tool("label"))
    app.agent(name="calls")(caller.calls)
    async with app, app.worker():
        await made(app, [("refund", {"invoice": "I", "cents": 5})], "late")
        assert (await blocked(app, "late")).status == "unknown"
        handle = await made(app, [("label", {"invoice": "I"})], "cancelled")
        await until(lambda: desk.acted(2))
        await handle.cancel(who="test")
        (desk.place / "wait").unlink()

        async def ended() -> bool | None:
            row = await app.opened.run(DEFAULT_TENANT, RunId("cancelled"))
            return True if row is not None and row.status == "cancelled" else None

        await until(ended)
        [operation] = await operations(app, "cancelled")
        assert operation.status == "succeeded"
    assert desk.acts() == ["refund I 5", "label I"]


async def test_a_tool_that_is_gone_fails_and_a_hint_that_was_taken_back_is_believed_no_more(
    desk: Desk, store: str, tmp_path: Path
) -> None:
    listing = tmp_path / "desk.json"
    app = Outlive(store)
    server = ToolServer(app, "desk", caller.at(desk.place))
    await server.record(listing)
    (desk.place / "gone").touch()
    async with working(f"{store}-gone", desk) as other:
        assert await result(other, ("label", {"invoice": "I"})) == ["failed: Unknown tool: label"]
    (desk.place / "gone").unlink()
    (desk.place / "drop").touch()
    TOOLS.clear()
    TOOLS.update(server.tools(listing, believe_hints=True))
    app.agent(name="calls")(caller.calls)
    async with lab(app, deps=None) as t, server.connected():
        run = await t.start(agent(app), [("search", {"query": "x"})])
        [said] = await run.result()
        assert "no longer says of search what is believed of it" in said
        run = await t.start(agent(app), [("refund", {"invoice": "I", "cents": 1})])
        assert len(await run.result()) == 1
    assert desk.acts() == ["refund I 1"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_picture_comes_back_whole(kind: str, desk: Desk, store: str, request: pytest.FixtureRequest) -> None:
    url = store if kind == "sqlite" else request.getfixturevalue("postgres")
    async with working(url, desk) as app:
        handle = await made(app, [("picture", {"size": 60_000})])
        assert await asyncio.wait_for(handle.result(), 60) == ["a picture"]
        [operation] = await operations(app)
        entries = await app.opened.entries(DEFAULT_TENANT, RunId("r"), after=-1, limit=100)
        [payload] = [one.payload for one in entries if one.payload is not None and "image/png" in one.payload]
        said = json.loads(payload)
        assert said["content"][1] == {"type": "image", "mimeType": "image/png", "data": "AAAA" * 60_000}
        assert operation.status == "succeeded"


@BOTH
async def test_a_token_is_read_as_a_secret_and_written_nowhere(
    desk: Desk, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLIVE_SECRET_DESK_TOKEN", "s3cret-of-the-desk")
    more: dict[str, Any] = {"secret": "desk/token"} if desk.url else {"secrets": {"DESK_TOKEN": "desk/token"}}
    async with working(store, desk, **more) as app:
        [said] = await result(app, ("whoami", {}))
        assert "desk/token" in said
        assert "s3cret" not in said
        await ToolServer(Outlive(), "desk", caller.at(desk.place, desk.url, **more)).record(tmp_path / "listing")
    assert not any(b"s3cret" in (tmp_path / name).read_bytes() for name in os.listdir(tmp_path) if "runs.db" in name)
    with pytest.raises(Refused, match="Authorization already"):
        Http("http://localhost/mcp", secret="desk/token", headers={"authorization": "Bearer x"})


async def test_a_secret_or_a_program_that_is_not_there_is_known_not_to_have_been_sent(store: str, desk: Desk) -> None:
    for at, why in (
        (caller.at(desk.place, secrets={"X": "desk/none"}), "desk/none"),
        (Stdio("there-is-no-such-program"), "FileNotFoundError"),
        # The end of the block does not wait for it either.
        (Stdio(sys.executable, "-c", "import time; time.sleep(999)"), "could not be reached in time"),
    ):
        app = Outlive()
        server = ToolServer(app, "desk", at)
        TOOLS.clear()
        TOOLS.update(refund=server.tool("refund", timeout=SOON))
        app.agent(name="calls")(caller.calls)
        async with lab(app, deps=None) as t:
            run = await t.start(agent(app), [("refund", {})])
            [said] = await run.result()
            assert "use `async with server.connected():`" in said
            async with server.connected():
                run = await t.start(agent(app), [("refund", {})])
                [said] = await run.result()
                assert said.startswith("ToolFailed")
                assert why in said


async def test_what_a_block_with_a_worker_raises_is_raised_as_it_is(desk: Desk, store: str) -> None:
    with pytest.raises(KeyError):
        async with working(store, desk) as app:
            await result(app, ("search", {"query": "x"}))
            raise KeyError("mine")


async def test_registering_and_listing_runs_start_no_server(desk: Desk, store: str) -> None:
    app = Outlive(store)
    caller.declared(app, desk.place)
    async with app, app.worker():
        assert await app.opened.run(DEFAULT_TENANT, RunId("none")) is None
        await result(app)
    assert not (desk.place / "started").exists()
    with pytest.raises(ToolError, match="x"):
        raise ToolError("x")
