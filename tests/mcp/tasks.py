"""The client's half of the tasks extension, as its specification says it, for the client of the SDK."""

from collections.abc import Sequence
from typing import Any, Literal

from mcp import Client, ClientSession
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.types import CallToolResult, Request, RequestParams, Result
from pydantic import RootModel

from outlive.mcp.server import EXTENSION, KEY
from tests.mcp.waiting import until

TERMINAL = ("completed", "failed", "cancelled")


class Answer(RootModel[dict[str, Any]]):
    """Whatever was answered, as it came over the wire."""


class Created(Result):
    """The flat `CreateTaskResult`."""

    result_type: Literal["task"]
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class TaskParams(RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param = "taskId"


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams
    name_param = "taskId"


async def get(client: Client, task: str) -> dict[str, Any]:
    return (await client.session.send_request(GetTask(params=TaskParams(task_id=task)), Answer)).root


async def cancel(client: Client, task: str) -> dict[str, Any]:
    return (await client.session.send_request(CancelTask(params=TaskParams(task_id=task)), Answer)).root


async def update(client: Client, task: str, responses: dict[str, Any]) -> dict[str, Any]:
    params = UpdateParams(task_id=task, input_responses=responses)
    return (await client.session.send_request(UpdateTask(params=params), Answer)).root


async def reaches(client: Client, task: str, *statuses: str) -> dict[str, Any]:
    """The task once it has one of these statuses; it fails for one that has ended otherwise."""

    async def found() -> dict[str, Any] | None:
        seen = await get(client, task)
        if seen["status"] in statuses:
            return seen
        assert seen["status"] not in TERMINAL, seen
        return None

    return await until(found)


async def start(client: Client, agent: str, arguments: dict[str, Any], *, key: str | None = None) -> Created:
    """Call a tool and give its task, without waiting for it."""
    found = await _called(client, agent, arguments, key)
    assert isinstance(found, Created), found
    return found


async def refused(client: Client, agent: str, arguments: dict[str, Any], *, key: str | None = None) -> str:
    """Call a tool that starts nothing: what it says."""
    found = await _called(client, agent, arguments, key)
    assert isinstance(found, CallToolResult) and found.is_error, found
    return "".join(getattr(one, "text", "") for one in found.content)


async def _called(client: Client, agent: str, arguments: dict[str, Any], key: str | None) -> Result:
    meta: Any = None if key is None else {KEY: key}
    return await client.session.call_tool(agent, arguments, meta=meta, allow_claimed=True)


class Tasks(ClientExtension):
    """Makes `client.call_tool` wait for the end of a task."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=Created, resolve=self._resolve),)

    async def _resolve(self, created: Created, ctx: ClaimContext) -> CallToolResult:
        session: ClientSession = ctx.session

        async def ended() -> dict[str, Any] | None:
            seen = (await session.send_request(GetTask(params=TaskParams(task_id=created.task_id)), Answer)).root
            return seen if seen["status"] in TERMINAL else None

        return CallToolResult.model_validate((await until(ended))["result"], by_name=False)
