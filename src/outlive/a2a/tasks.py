"""The task store: to save a new task starts a run, to get one reads its run.

A task belongs to the user who saved it; to everybody else it is not there.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, cast

from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.server.tasks.task_store import TaskStore
from a2a.types.a2a_pb2 import (
    Artifact,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, encode_list_tasks_cursor
from google.protobuf import json_format

from outlive.app.client import last_entry
from outlive.app.mail import readable_questions
from outlive.app.operate import read_input
from outlive.app.outlive import Outlive
from outlive.engine.definition import Agent
from outlive.model.errors import BadArguments, CodeError, RequestError, UndecodableEntry
from outlive.model.ids import RunId, Tenant, unnamed
from outlive.model.operation import IN_DOUBT
from outlive.model.run import RunFilter, RunRow

# Labels of runs that are tasks: whose, and of which conversation.
OWNER, CONTEXT = "a2a", "a2a-context"
# In the metadata of a new task, where an application has several agents.
AGENT = "agent"
# How many tasks of one user are listed, the newest ones.
MOST_LISTED = 1000


class RunTaskStore(TaskStore):
    """Tasks that are runs of an application whose store is open, all of one tenant.

    Whose a task is, `owner_resolver` says of a call: by default its user. Runs act on the authority of that owner.
    """

    def __init__(
        self, app: Outlive[Any], *, tenant: str = "default", owner_resolver: OwnerResolver = resolve_user_scope
    ) -> None:
        self._app, self._tenant, self._owner = app, Tenant(tenant), owner_resolver

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Start the run of a new task: of its agent, with its last message of the user as input.

        A task that has its run already is left as that says. Raises InvalidParamsError for one that is no new one and
        has no run, whose message does not fit, or whose id another user's task has.
        """
        owner = self._owner(context)
        row = await self._row(task.id)
        if row is not None:
            if row.labels.get(OWNER) != owner:
                raise InvalidParamsError(message=f"the id {task.id} is taken")
            return
        if task.status.state not in (TaskState.TASK_STATE_UNSPECIFIED, TaskState.TASK_STATE_SUBMITTED):
            raise InvalidParamsError(message=f"task {task.id} has no run, and is not a new one")
        try:
            agent = self._agent(task)
            labels = {OWNER: owner, **({CONTEXT: task.context_id} if task.context_id else {})}
            given = _input(agent, task)
            await self._app.start(agent, given, id=task.id, tenant=self._tenant, principal=owner, labels=labels)
        except (CodeError, RequestError) as error:
            raise InvalidParamsError(message=str(error)) from None

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """The task as its run is now, or None."""
        row = await self._row(task_id)
        if row is None or row.labels.get(OWNER) != self._owner(context):
            return None
        return await self._whole(row, await self._bare(row))

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Tasks of a user, those first whose run has changed last; the newest 1000 runs are looked at."""
        labels = {OWNER: self._owner(context), **({CONTEXT: params.context_id} if params.context_id else {})}
        rows = await self._app.opened.runs(self._tenant, RunFilter(labels=labels, limit=MOST_LISTED))
        since = params.status_timestamp_after.ToMilliseconds() if params.HasField("status_timestamp_after") else 0
        found = [(row, await self._bare(row)) for row in rows if row.updated_at >= since and not row.damaged]
        found = [(row, task) for row, task in found if params.status in (0, task.status.state)]
        found.sort(key=lambda one: (one[0].updated_at, one[0].id), reverse=True)
        total, size = len(found), params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        if params.page_token:
            cursor = decode_list_tasks_cursor(params.page_token)
            if cursor is None or cursor.timestamp_ns is None:
                raise InvalidParamsError(message=f"Invalid page token: {params.page_token}")
            behind = (cursor.timestamp_ns // 1_000_000, cursor.task_id)
            found = [one for one in found if (one[0].updated_at, one[0].id) < behind]
        page, more = found[:size], len(found) > size
        token = ""
        if more:
            last = page[-1][0]
            token = encode_list_tasks_cursor(ListTasksCursor(timestamp_ns=last.updated_at * 1_000_000, task_id=last.id))
        tasks = [await self._whole(row, task) for row, task in page]
        return ListTasksResponse(tasks=tasks, next_page_token=token, page_size=size, total_size=total)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Runs are forgotten when retention says, not by whoever asked for them. Raises UnsupportedOperationError."""
        raise UnsupportedOperationError(message="a run is forgotten when its retention is over")

    # ---- runs

    async def _row(self, id: str) -> RunRow | None:
        if unnamed("it", id):
            return None
        return await self._app.opened.run(self._tenant, RunId(id))

    def _agent(self, task: Task) -> Agent[object, object]:
        registry = self._app.registry
        registry.load()
        named = task.metadata[AGENT] if AGENT in task.metadata else None
        if named is None and len(registry.agents) == 1:
            (named,) = registry.agents
        if not isinstance(named, str):
            known = ", ".join(sorted(registry.agents))
            raise BadArguments(function="save", why=f"say in metadata.{AGENT} which of {known} is meant")
        return cast("Agent[object, object]", registry.agent(named))

    async def _bare(self, row: RunRow) -> Task:
        """The task with its status and nothing else."""
        state, why = await self._state(row)
        task = Task(id=row.id, context_id=row.labels.get(CONTEXT, ""))
        task.status.CopyFrom(TaskStatus(state=state))
        task.status.timestamp.FromMilliseconds(row.updated_at)
        if why:
            task.status.message.CopyFrom(_said(row, Role.ROLE_AGENT, Part(text=why), "status"))
        task.metadata.update({AGENT: row.agent, "run": {"status": row.status, "reason": row.reason}})
        return task

    async def _state(self, row: RunRow) -> tuple[TaskState, str]:
        store = self._app.opened
        if row.ended:
            return await self._end(row)
        if row.paused_at is not None:
            return TaskState.TASK_STATE_INPUT_REQUIRED, f"paused; `outlive resume {row.id}` lets it go on"
        if row.status == "blocked":
            what = ": ".join(filter(None, (row.reason, row.detail)))
            return TaskState.TASK_STATE_INPUT_REQUIRED, f"blocked: {what}; a person decides: `outlive show {row.id}`"
        if row.status in ("waiting", "running"):
            asks = [f"{one.role}: {one.text}" for one in await readable_questions(store, row) if not one.answered_by]
            approvals = await self._app.approvals.of(self._tenant).list(run=row.id)
            asks += [f"{one.role}: an approval of {one.tool}" for one in approvals]
            if asks:
                return TaskState.TASK_STATE_INPUT_REQUIRED, "it asks " + "; ".join(asks)
        ready = row.status == "ready"
        return (TaskState.TASK_STATE_SUBMITTED if ready else TaskState.TASK_STATE_WORKING), row.detail or row.reason

    async def _end(self, row: RunRow) -> tuple[TaskState, str]:
        store = self._app.opened
        doubts = [one for one in await store.operations(row.tenant, row.id) if one.status in IN_DOUBT]
        unknown = "".join(f"; it is not known whether {one.tool} ({one.id}) happened" for one in doubts)
        try:
            ended, _ = await last_entry(store, row)
        except UndecodableEntry as error:
            return TaskState.TASK_STATE_FAILED, str(error)
        if row.status == "succeeded":
            return TaskState.TASK_STATE_COMPLETED, ""
        if row.status == "cancelled":
            return TaskState.TASK_STATE_CANCELED, f"cancelled: {ended.reason}{unknown}"
        raised = f"{ended.error.type}: {ended.error.message}" if ended.error is not None else ended.reason
        return TaskState.TASK_STATE_FAILED, f"{row.status}: {raised}{unknown}"

    async def _whole(self, row: RunRow, task: Task) -> Task:
        """With what was asked, and the result as an artifact."""
        first = await self._app.opened.entries(row.tenant, row.id, after=-1, limit=1)
        if first and first[0].payload is not None:
            task.history.append(_said(row, Role.ROLE_USER, _part(first[0].payload), "input"))
        if row.status == "succeeded" and task.status.state == TaskState.TASK_STATE_COMPLETED:
            _, result = await last_entry(self._app.opened, row)
            task.artifacts.append(Artifact(artifact_id="result", name="result", parts=[_part(result or "null")]))
        return task


def _input(agent: Agent[object, object], task: Task) -> object:
    """What was asked: data as it is, a text as a text where the agent takes one, else as JSON. Raises BadArguments."""
    asked = [one for one in task.history if one.role == Role.ROLE_USER]
    if not asked:
        raise BadArguments(function="save", why="a new task has a message of the user in its history")
    parts = asked[-1].parts
    for part in parts:
        if part.HasField("data"):
            return read_input(agent, str(json_format.MessageToJson(part.data)))
    text = "\n".join(part.text for part in parts if part.HasField("text"))
    try:
        return agent.input.decode(json.dumps(text), where="its input")
    except UndecodableEntry:
        return read_input(agent, text)


def _part(recorded: str) -> Part:
    """Recorded JSON: a text as text, what the protocol can hold as data, and all else as the JSON that it is.

    It has no numbers but floating ones, so that a large integer would be another one, and no deep nesting.
    """
    value: object = json.loads(recorded)
    if isinstance(value, str):
        return Part(text=value)
    part = Part()
    with suppress(json_format.Error):
        json_format.Parse(recorded, part.data)
        if json.loads(json_format.MessageToJson(part.data)) == value:
            return part
    return Part(text=recorded, media_type="application/json")


def _said(row: RunRow, role: Role, part: Part, what: str) -> Message:
    return Message(message_id=f"{row.id}/{what}", task_id=row.id, role=role, parts=[part])
