"""Who gets in, what they reach, and clients that know no tasks."""

import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY

from outlive import Outlive
from outlive.mcp import Access, make_server
from outlive.model.errors import SettingInvalid, UnknownAgent
from tests.cli import agents_app
from tests.cli.waiting import Place
from tests.mcp.conftest import Connect, child, listening
from tests.mcp.tasks import Tasks, cancel, get, reaches, refused, start, update

TOKENS = {"OUTLIVE_SECRET_MCP_ADA": "ada-shows-this", "OUTLIVE_SECRET_MCP_BO": "bo-shows-this"}
CLIENTS = ("--client", "ada=mcp/ada", "--client", "bo=mcp/bo")


@asynccontextmanager
async def showing(url: str, token: str) -> AsyncIterator[Client]:
    """A client that shows a token."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), extensions=[Tasks()], cache=None) as client:
            yield client


async def test_a_server_is_killed_between_start_and_poll(place: Place, store: str) -> None:
    """Also in the middle of a call: the same key finds the run that the lost call has started."""
    process, url = listening(place)
    async with Client(url, extensions=[Tasks()], cache=None) as client:
        created = await start(client, "greet", {"input": "ada"}, key="k")
    process.send(signal.SIGKILL)
    process.code()
    process, url = listening(place, "--work")
    async with Client(url, extensions=[Tasks()], cache=None) as client:
        assert (await start(client, "greet", {"input": "ada"}, key="k")).task_id == created.task_id
        done = await reaches(client, created.task_id, "completed")
        assert done["result"]["structuredContent"] == {"result": "hello ADA"}
    process.send(signal.SIGTERM)
    assert process.code() == 0
    _, shown = place.done("ps", "--all")
    assert sum(line.startswith("greet-") for line in shown) == 1


async def test_a_key_is_one_input_of_one_client(place: Place) -> None:
    place.env |= TOKENS
    _, url = listening(place, *CLIENTS)
    async with showing(url, "ada-shows-this") as ada, showing(url, "bo-shows-this") as bo:
        created = await start(ada, "greet", {"input": "ada"}, key="k")
        assert "input" in await refused(ada, "greet", {"input": "bo"}, key="k")
        assert (await start(bo, "greet", {"input": "ada"}, key="k")).task_id != created.task_id
        with pytest.raises(MCPError, match="outlive/key is a text"):
            await start(ada, "greet", {"input": "ada"}, key="")


async def test_only_clients_with_a_token_get_in_and_one_approves_what_another_started(place: Place) -> None:
    place.env |= TOKENS
    _, url = listening(place, *CLIENTS, "--work", "--allow-approvals", "finance")
    async with httpx2.AsyncClient() as stranger:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic ada-shows-this"}):
            answer = await stranger.post(url, json={}, headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    async with showing(url, "ada-shows-this") as ada, showing(url, "bo-shows-this") as bo:
        created = await start(ada, "send", {"input": 7})
        waits = await reaches(ada, created.task_id, "input_required")
        assert waits["inputRequests"] == {}
        ((key, _),) = (await get(bo, created.task_id))["inputRequests"].items()
        content = {"action": "accept", "content": {"decision": "approve"}}
        await update(ada, created.task_id, {key: content})
        assert not (place.path / "transferred").exists()
        await update(bo, created.task_id, {key: content})
        await reaches(ada, created.task_id, "completed")
    _, shown = place.done("show", created.task_id)
    assert "bo" in "\n".join(shown)


def test_http_for_other_machines_needs_clients(place: Place) -> None:
    code, said = place.done("mcp", "--transport", "http", "--host", "0.0.0.0")
    assert (code, "--client NAME=SECRET" in said[0]) == (2, True)
    code, said = place.done("mcp", "--client", "ada=mcp/ada")
    assert (code, "--transport http" in said[0]) == (2, True)


async def test_runs_of_other_tenants_or_that_no_client_started_are_no_tasks(connect: Connect, place: Place) -> None:
    place.done("start", "greet", '"eve"', "--id", "mine", "--tenant", "other", "--label", "mcp=eve")
    place.done("start", "greet", '"eve"', "--id", "ours")
    place.done("start", "order", '{"item": "tea"}', "--id", "unserved", "--label", "mcp=eve")
    place.done("start", "greet", '"eve"', "--id", "shown", "--label", "mcp=eve")
    async with connect("--agent", "greet") as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["greet"]
        for id in ("mine", "ours", "unserved", "none", "", "nul\0", "half \ud800".encode("utf-8", "replace").decode()):
            for ask in (get, cancel):
                with pytest.raises(MCPError, match="there is no task") as error:
                    await ask(client, id)
                assert error.value.code == INVALID_PARAMS
        assert (await get(client, "shown"))["status"] == "working"
        with pytest.raises(MCPError, match="there is no tool 'order'"):
            await client.call_tool("order", {"item": "tea"})
    _, seen = place.done("ps", "--tenant", "other")
    assert any("ready" in line for line in seen)


async def test_a_client_that_knows_no_tasks_gets_none(place: Place) -> None:
    async with child(place, tasks=False) as client:
        for ask in (get, cancel):
            with pytest.raises(MCPError) as error:
                await ask(client, "any")
            assert error.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
            assert error.value.data == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_knows_no_tasks_asks_with_a_tool(place: Place, mode: str) -> None:
    async with child(place, "--work", "--wait", "500ms", tasks=False, mode=mode) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert tools["wait"].output_schema is None
        greeted = await client.call_tool("greet", {"input": "ada"})
        assert greeted.structured_content == {"result": "hello ADA"}
        asked = text(await client.call_tool("sells", {"input": "a boat"}))
        assert "it asks owner: Sell a boat?" in asked and "Do not start it again" in asked
        waits = await client.call_tool("wait", {"input": "ada"})
        assert not waits.is_error
        (run,) = re.findall(r'outlive_status and {"run": "([^"]+)"}', text(waits))
        assert run in text(await client.call_tool("outlive_status", {"run": run}))
        place.open_gate()
        while "goes on" in text(done := await client.call_tool("outlive_status", {"run": run})):
            pass
        assert done.structured_content == {"result": "ADAada"}
        ended = await client.call_tool("outlive_cancel", {"run": run})
        assert ended.structured_content == {"result": "ADAada"}
        with pytest.raises(MCPError, match="there is no task"):
            await client.call_tool("outlive_status", {"run": "mine"})


async def test_what_does_not_fit_is_said_and_starts_nothing(place: Place) -> None:
    async with child(place) as client:
        for agent, given in (
            ("greet", {"input": 5}), ("greet", {}), ("greet", {"input": "a", "more": 1}), ("order", {"count": 1}),
        ):  # fmt: skip
            assert agent in await refused(client, agent, given)
    _, shown = place.done("ps", "--all")
    assert not any(line.startswith(("greet-", "order-")) for line in shown)


async def test_a_store_that_is_not_there_is_an_error_and_not_a_status() -> None:
    async with Client(make_server(agents_app.app, Access(who="ada")), extensions=[Tasks()]) as client:
        for ask in (get(client, "greet-1"), start(client, "greet", {"input": "ada"})):
            with pytest.raises(MCPError, match="it is not open") as error:
                await ask
            assert error.value.code == INTERNAL_ERROR


def test_a_server_whose_client_has_gone_ends_and_prints_nothing(place: Place) -> None:
    for more in ((), ("--work",)):
        assert place.done("mcp", *more) == (0, [])
    process, _ = listening(place, "--work")
    process.send(signal.SIGINT)
    assert process.code() == 0


def test_a_server_of_nothing_is_refused() -> None:
    with pytest.raises(SettingInvalid, match="registers no agent"):
        make_server(Outlive[None](), Access(who="ada"))
    with pytest.raises(UnknownAgent):
        make_server(agents_app.app, Access(who="ada"), agents=("greets",))


def text(result: object) -> str:
    return "\n".join(str(getattr(one, "text", "")) for one in getattr(result, "content", ()))
