"""Runs as tasks: started, polled, updated and cancelled by the client of the SDK, across servers that come and go."""

import json

import pytest
from mcp import MCPError
from mcp.types import INVALID_PARAMS

from tests.cli.waiting import Place
from tests.mcp.conftest import ALL_WAYS, Connect
from tests.mcp.tasks import cancel, get, reaches, start, update


async def test_agents_are_tools_and_a_call_gives_what_the_agent_returns(connect: Connect) -> None:
    async with connect("--work") as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert tools["sells"].description == "Asks before it waits for an offer."
        assert tools["order"].input_schema["required"] == ["item"]
        assert tools["greet"].input_schema["properties"] == {"input": {"type": "string"}}
        assert not {"outlive_status", "outlive_cancel"} & tools.keys()
        greeted = await client.call_tool("greet", {"input": "ada"})
        assert greeted.structured_content == {"result": "hello ADA"}
        ordered = await client.call_tool("order", {"item": "tea", "count": 2})
        assert ordered.structured_content == {"result": [{"item": "tea", "count": 2}] * 2}
        assert json.loads(getattr(ordered.content[0], "text", "")) == [{"item": "tea", "count": 2}] * 2


@pytest.mark.parametrize("connect", ALL_WAYS, indirect=True)
async def test_a_task_outlives_its_server(connect: Connect, place: Place) -> None:
    """Started by one process, driven by another, seen to its end by a third."""
    async with connect() as client:
        created = await start(client, "wait", {"input": "ada"}, key="once")
        assert created.status == "working"
        assert "no live worker serves wait" in (created.status_message or "")
        assert len(created.task_id) >= len("wait-") + 32
    worker = place.outlive("worker")
    worker.line("at the gate")
    async with connect() as client:
        again = await start(client, "wait", {"input": "ada"}, key="once")
        assert again.task_id == created.task_id
        assert (await start(client, "wait", {"input": "ada"}, key="another")).task_id != created.task_id
        seen = await get(client, created.task_id)
        assert (seen["status"], seen["resultType"], seen["createdAt"]) == ("working", "complete", created.created_at)
        place.open_gate()
        done = await reaches(client, created.task_id, "completed")
        assert done["result"]["structuredContent"] == {"result": "ADAada"}
        assert done["result"]["isError"] is False


async def test_a_question_is_answered(connect: Connect) -> None:
    async with connect("--work") as client:
        created = await start(client, "sells", {"input": "a boat"})
        asks = await reaches(client, created.task_id, "input_required")
        ((key, request),) = asks["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        assert request["params"]["requestedSchema"]["properties"]["answer"]["type"] == "boolean"
        assert request["params"]["message"].startswith("Sell a boat? (asked of owner")
        with pytest.raises(MCPError) as refused:
            await update(client, created.task_id, {key: {"action": "accept", "content": {"answer": "perhaps"}}})
        assert refused.value.code == INVALID_PARAMS
        await update(client, created.task_id, {key: {"action": "decline"}, "question:none": {"action": "accept"}})
        assert (await get(client, created.task_id))["inputRequests"].keys() == {key}
    async with connect("--work") as client:
        answered = await update(client, created.task_id, {key: {"action": "accept", "content": {"answer": False}}})
        assert {name for name in answered if name != "_meta"} == {"resultType"}
        done = await reaches(client, created.task_id, "completed")
        assert done["result"]["content"] == [{"type": "text", "text": "kept"}]


async def test_a_question_to_another_role_is_not_answered_here(connect: Connect) -> None:
    async with connect("--work", "--answer-role", "clerk") as client:
        created = await start(client, "sells", {"input": "a boat"})
        asks = await reaches(client, created.task_id, "input_required")
        assert asks["inputRequests"] == {}
        assert f"not decided here: see `outlive show {created.task_id}`" in asks["statusMessage"]


async def test_an_approval_is_given_by_somebody_else_than_the_run_acts_for(connect: Connect, place: Place) -> None:
    async with connect("--work", "--who", "lena", "--principal", "assistant", "--allow-approvals", "finance") as client:
        created = await start(client, "send", {"input": 4200})
        asks = await reaches(client, created.task_id, "input_required")
        ((key, request),) = asks["inputRequests"].items()
        assert 'transfer with {"cents":4200}' in request["params"]["message"]
        with pytest.raises(MCPError, match="approve or reject"):
            await update(client, created.task_id, {key: {"action": "accept", "content": {"decision": "maybe"}}})
        assert not (place.path / "transferred").exists()
        await update(client, created.task_id, {key: {"action": "accept", "content": {"decision": "approve"}}})
        done = await reaches(client, created.task_id, "completed")
        assert done["result"]["structuredContent"] == {"result": "transferred 4200"}
        assert (place.path / "transferred").read_text() == "4200\n"


async def test_a_rejected_call_is_told_to_its_agent(connect: Connect, place: Place) -> None:
    async with connect("--work", "--who", "lena", "--principal", "assistant", "--allow-approvals", "finance") as client:
        created = await start(client, "send", {"input": 4200})
        ((key, _),) = (await reaches(client, created.task_id, "input_required"))["inputRequests"].items()
        content = {"decision": "reject", "why": "too much"}
        await update(client, created.task_id, {key: {"action": "accept", "content": content}})
        done = await reaches(client, created.task_id, "completed")
        assert done["result"]["isError"] is True
        assert "too much" in done["result"]["content"][0]["text"]
        assert not (place.path / "transferred").exists()


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("--allow-approvals", "finance"),
        ("--allow-approvals", "finance", "--who", "lena", "--principal", " LENA "),
        ("--allow-approvals", "buying", "--who", "lena", "--principal", "assistant"),
    ],
)
async def test_nobody_approves_a_call_of_his_own_or_in_a_role_that_is_not_allowed(
    connect: Connect, place: Place, given: tuple[str, ...]
) -> None:
    async with connect("--work", *given) as client:
        created = await start(client, "send", {"input": 1})
        asks = await reaches(client, created.task_id, "input_required")
        assert asks["inputRequests"] == {}
        assert "transfer waits for an approval by finance" in asks["statusMessage"]
        code, shown = place.done("approvals", "--json")
        assert code == 0
        (approval,) = json.loads("\n".join(shown))
        forged = {f"approval:{approval['approval']}": {"action": "accept", "content": {"decision": "approve"}}}
        await update(client, created.task_id, forged)
        assert (await get(client, created.task_id))["status"] == "input_required"
        assert not (place.path / "transferred").exists()


async def test_a_run_in_doubt_says_so(connect: Connect, place: Place) -> None:
    async with connect("--work") as client:
        created = await start(client, "buy", {"input": 5})
        blocked = await reaches(client, created.task_id, "input_required")
        assert blocked["inputRequests"] == {}
        assert "blocked: operation in doubt" in blocked["statusMessage"]
        assert "it is not known whether this happened: pay (operation " in blocked["statusMessage"]
        assert blocked["_meta"]["outlive/run"]["reason"] == "operation in doubt"
        await cancel(client, created.task_id)
        ended = await reaches(client, created.task_id, "cancelled")
        assert "it is not known whether this happened: pay" in ended["statusMessage"]
        assert (place.path / "paid").read_text() == "x"


async def test_a_task_is_cancelled(connect: Connect) -> None:
    async with connect("--who", "lena") as client:
        created = await start(client, "greet", {"input": "ada"})
        acknowledged = await cancel(client, created.task_id)
        assert acknowledged["resultType"] == "complete"
        await cancel(client, created.task_id)
        ended = await reaches(client, created.task_id, "cancelled")
        assert "over MCP" in ended["statusMessage"]
        assert not {"result", "error"} & ended.keys()


async def test_what_an_agent_raised_is_a_result_with_an_error(connect: Connect) -> None:
    async with connect("--work") as client:
        failed = await client.call_tool("fail", {})
        assert failed.is_error
        assert "ValueError: out of stock" in getattr(failed.content[0], "text", "")
