"""The MCP server: tools that start runs, and the three methods of the tasks extension over any run that one started.

A handler keeps nothing: it reads the store, and writes through the same seams as the command line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from importlib.metadata import version
from typing import Any, cast

from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.types import (
    CLIENT_CAPABILITIES_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    RequestParams,
    Tool,
)

from outlive.app import mail, stop
from outlive.app.approvals import Approvals
from outlive.app.outlive import Outlive
from outlive.engine.control import Control
from outlive.engine.worker import owner_name
from outlive.log.canonical import digest
from outlive.mcp.face import Face, Json
from outlive.mcp.view import APPROVAL, LABEL, QUESTION, Access, look, said, task_of
from outlive.model.clock import Clock, SystemClock
from outlive.model.errors import (
    ApprovalClosed,
    CodeError,
    CommitUnknown,
    OutliveError,
    Refused,
    RequestError,
    SettingInvalid,
    StoreError,
)
from outlive.model.ids import RunId, Tenant, unnamed
from outlive.model.run import RunRow

EXTENSION = "io.modelcontextprotocol/tasks"
# In the `_meta` of a call: the same key, agent and caller is the same run, however often it is called.
KEY = "outlive/key"
# Who calls, where the transport knows: in the scope of its request.
CALLER = "outlive.client"
STATUS, CANCEL = "outlive_status", "outlive_cancel"

log = logging.getLogger("outlive.mcp")

_LONGEST_KEY = 1000
_TRIES = 3
_PAUSE_LEAST, _PAUSE_MOST = 0.02, 0.5

Context = Any
Handler = Callable[[Context, Any], Awaitable[Any]]


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`: what was answered, by the key of its request."""

    input_responses: dict[str, dict[str, Any]]


def make_server(
    app: Outlive[Any], access: Access, *, agents: Sequence[str] = (), clock: Clock | None = None
) -> Server[Any]:
    """An MCP server of the agents (default: all that are registered) of an application whose store is open.

    Raises UnknownAgent, Refused for an agent whose name no tool can have or one of the server's own has, and
    SettingInvalid where there is no agent.
    """
    app.registry.load()
    specs = [app.registry.agent(name) for name in agents] or list(app.registry.agents.values())
    if not specs:
        raise SettingInvalid(name="app", value="", source="option", why="it registers no agent")
    if taken := sorted({STATUS, CANCEL}.intersection(spec.name for spec in specs)):
        raise Refused(what=f"the agent {taken[0]!r} as a tool", why="a tool of the server itself is called so")
    runs = _Runs(app, access, {spec.name: Face.of(spec) for spec in specs}, clock or SystemClock())
    server: Server[Any] = Server(
        "outlive", version=version("outlive"),
        instructions="Each tool starts a durable run of an agent. It goes on when this server, or you, go away.",
    )  # fmt: skip
    server.extensions[EXTENSION] = {}
    server.add_request_handler("tools/list", PaginatedRequestParams, _told(runs.list))
    server.add_request_handler("tools/call", CallToolRequestParams, _told(runs.call))
    server.add_request_handler("tasks/get", TaskParams, _told(_tasks_only(runs.get)))
    server.add_request_handler("tasks/update", UpdateParams, _told(_tasks_only(runs.update)))
    server.add_request_handler("tasks/cancel", TaskParams, _told(_tasks_only(runs.cancel)))
    return server


class _Runs:
    """What the handlers do."""

    def __init__(self, app: Outlive[Any], access: Access, faces: Mapping[str, Face], clock: Clock) -> None:
        self._app, self._access, self._faces, self._clock = app, access, faces, clock
        self._tenant = Tenant(access.tenant)

    async def list(self, ctx: Context, params: PaginatedRequestParams) -> ListToolsResult:
        knows = _knows_tasks(ctx)
        tools = [
            Tool(
                name=name, description=face.description, input_schema=face.input_schema,
                # A call that returns before the end of its run has no result that would fit the schema.
                output_schema=face.output_schema if knows else None,
            )
            for name, face in self._faces.items()
        ]  # fmt: skip
        if not knows:
            tools += _ASKING
        return ListToolsResult(tools=tools)

    async def call(self, ctx: Context, params: CallToolRequestParams) -> Json:
        arguments = params.arguments or {}
        if params.name in (STATUS, CANCEL):
            row = await self._find(str(arguments.get("run", "")))
            if params.name == CANCEL:
                await self._cancel(ctx, row)
            return said(await self._task(ctx, row.id))
        face = self._faces.get(params.name)
        if face is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:100]!r}")
        try:
            run = await self._start(ctx, face, arguments)
        except (CodeError, RequestError) as error:
            return {"content": [{"type": "text", "text": str(error)}], "isError": True, "resultType": "complete"}
        if not _knows_tasks(ctx):
            return said(await self._waited(ctx, run))
        members = ("result", "error", "inputRequests")
        task = {name: one for name, one in (await self._task(ctx, run)).items() if name not in members}
        return {**task, "resultType": "task"}

    async def get(self, ctx: Context, params: TaskParams) -> Json:
        return {**await self._task(ctx, params.task_id), "resultType": "complete"}

    async def cancel(self, ctx: Context, params: TaskParams) -> Json:
        await self._cancel(ctx, await self._find(params.task_id))
        return {"resultType": "complete"}

    async def update(self, ctx: Context, params: UpdateParams) -> Json:
        """Each response stands for itself; what is not outstanding any more, or was declined, changes nothing."""
        row, caller = await self._find(params.task_id), self._caller(ctx)
        seen = await look(self._app.opened, self._approvals(), row, self._access, caller)
        for question in seen.questions:
            content = _accepted(params.input_responses.get(QUESTION + question.id))
            if content is not None:
                body = mail.check_answer(question, _answer(content, question))
                await mail.answer(self._app.opened, row.tenant, row.id, question.id, body, caller, self._clock.now())
        for approval in seen.offered:
            content = _accepted(params.input_responses.get(APPROVAL + approval.id))
            if content is not None:
                await self._decide(approval.id, approval.role, caller, content)
        return {"resultType": "complete"}

    async def _decide(self, approval: str, role: str, caller: str, content: Json) -> None:
        decision, why = content.get("decision"), content.get("why") or "over MCP"
        if decision not in ("approve", "reject") or not isinstance(why, str):
            raise MCPError(INVALID_PARAMS, "the decision is approve or reject, and why is a text")
        try:
            if decision == "approve":
                await self._approvals().approve(approval, who=caller, role=role, why=why)
            else:
                await self._approvals().reject(approval, who=caller, role=role, why=why)
        except ApprovalClosed:
            log.info("approval %s was decided before %s did", approval, caller)

    # ---- runs

    async def _start(self, ctx: Context, face: Face, arguments: Mapping[str, object]) -> str:
        """Start a run, or find the one that this key has started. Raises CodeError, RunExists."""
        caller, agent = self._caller(ctx), face.agent
        given = face.read(arguments)
        id = f"{agent.name}-{await self._token(ctx, caller, agent.name)}"
        principal = self._access.principal if self._access.principal is not None else caller
        for left in range(_TRIES, 0, -1):
            try:
                await self._app.start(
                    agent, given, id=id, queue=self._access.queue, tenant=self._tenant, principal=principal,
                    labels={LABEL: caller},
                )  # fmt: skip
                break
            except CommitUnknown:  # the same id is the same run: it may be said again
                if left == 1:
                    raise
        return id

    async def _token(self, ctx: Context, caller: str, agent: str) -> str:
        """What nobody can guess: of a key that the client gives always the same."""
        key = (ctx.meta or {}).get(KEY)
        if key is None:
            return self._clock.token()
        if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY:
            raise MCPError(INVALID_PARAMS, f"{KEY} is a text of 1 to {_LONGEST_KEY} characters")
        secret = await self._app.opened.key(self._tenant)
        parts = (caller.encode(), agent.encode(), key.encode("utf-8", "surrogatepass"))
        return digest(secret, b"mcp", *parts)[:32]

    async def _find(self, id: str) -> RunRow:
        """The run of a task. One that no client has started, or of an agent that is not served, is none."""
        row = None
        if not unnamed("it", id):
            row = await self._app.opened.run(self._tenant, RunId(id))
        if row is None or LABEL not in row.labels or row.agent not in self._faces:
            raise MCPError(INVALID_PARAMS, f"there is no task {id[:100]!r}")
        return row

    async def _task(self, ctx: Context, id: str) -> Json:
        row = await self._find(id)
        seen = await look(self._app.opened, self._approvals(), row, self._access, self._caller(ctx))
        return task_of(seen, self._faces[row.agent])

    async def _waited(self, ctx: Context, id: str) -> Json:
        """The task when it has ended or needs somebody, or after a while."""
        until, pause = self._clock.boottime() + self._access.wait.total_seconds(), _PAUSE_LEAST
        while True:
            row = await self._find(id)
            if row.ended or row.status in ("waiting", "blocked") or row.paused_at is not None:
                task = await self._task(ctx, id)
                if task["status"] != "working":
                    return task
            left = until - self._clock.boottime()
            if left <= 0:
                return await self._task(ctx, id)
            await self._clock.sleep(min(pause, left))
            pause = min(pause * 1.5, _PAUSE_MOST)

    async def _cancel(self, ctx: Context, row: RunRow) -> None:
        caller = self._caller(ctx)
        control = Control(self._app.opened, self._clock, owner_name(self._clock))
        await stop.cancel(
            control, row.tenant, row.id, who=caller, why="over MCP", wait=timedelta(0), key=f"mcp:{caller}"
        )  # fmt: skip

    def _approvals(self) -> Approvals:
        return self._app.approvals.of(self._tenant)

    def _caller(self, ctx: Context) -> str:
        scope = getattr(ctx.request, "scope", None) or {}
        return cast(str, scope.get(CALLER, self._access.who))


def _told(handler: Handler) -> Handler:
    """What goes wrong as the error of JSON-RPC that says it."""

    async def handle(ctx: Context, params: Any) -> Any:
        try:
            return await handler(ctx, params)
        except (CodeError, RequestError) as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        except OutliveError as error:
            if isinstance(error, StoreError):
                log.warning("a request was refused: %s", error)
            raise MCPError(INTERNAL_ERROR, str(error)) from None

    return handle


def _tasks_only(handler: Handler) -> Handler:
    async def handle(ctx: Context, params: Any) -> Any:
        if not _knows_tasks(ctx):
            wanted: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "this takes the tasks extension", wanted)
        return await handler(ctx, params)

    return handle


def _knows_tasks(ctx: Context) -> bool:
    """Whether this very request says so; those of the older protocol never do."""
    known = (ctx.meta or {}).get(CLIENT_CAPABILITIES_META_KEY)
    extensions = known.get("extensions") if isinstance(known, Mapping) else getattr(known, "extensions", None)
    return isinstance(extensions, Mapping) and EXTENSION in extensions


def _accepted(response: Mapping[str, Any] | None) -> Json | None:
    """What was filled in; nothing where nobody has answered. To decline is not to reject: it stays open."""
    if response is None or response.get("action") != "accept":
        return None
    content = response.get("content")
    if not isinstance(content, dict):
        raise MCPError(INVALID_PARAMS, "a response that is accepted has content")
    return content


def _answer(content: Json, question: mail.Question) -> str:
    if "answer" not in content:
        raise MCPError(INVALID_PARAMS, f"the answer to {question.text[:100]!r} is missing")
    given = content["answer"]
    plain = question.expects in ("str", "int", "float", "bool")
    return given if isinstance(given, str) and not plain else json.dumps(given)


_RUN_ONLY: dict[str, Any] = {
    "type": "object", "required": ["run"],
    "properties": {"run": {"type": "string", "description": "the id of the run"}},
}  # fmt: skip
_ASKING = [
    Tool(name=STATUS, description="What has become of a run that another tool has started.", input_schema=_RUN_ONLY),
    Tool(name=CANCEL, description="Ask that a run ends; it may clean up first.", input_schema=_RUN_ONLY),
]
