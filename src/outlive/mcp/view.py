"""A run as a task of the extension `io.modelcontextprotocol/tasks`: what the store says of it, and nothing else.

A run that only a person can let go on is *input_required*, never *working*, whether or not this client may decide;
what it may decide is in `inputRequests`. *failed* is kept for what cannot be told at all: an agent that raised has
completed with an error, as the extension wants it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from outlive.app.approvals import Approvals
from outlive.app.client import last_entry
from outlive.app.mail import Question, readable_questions
from outlive.app.operate import ALIVE_MS
from outlive.log import kinds
from outlive.mcp.face import Face, Json
from outlive.model.approval import ApprovalRow, same_person
from outlive.model.errors import UndecodableEntry
from outlive.model.operation import IN_DOUBT, OperationRow
from outlive.model.run import RunRow
from outlive.store.port import Store

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]

# The label of runs that are tasks: only they can be reached. It says which client started them.
LABEL = "mcp"
QUESTION, APPROVAL = "question:", "approval:"

_POLL_MS, _POLL_PEOPLE_MS = 1000, 5000
_INTERNAL_ERROR = -32603
_SHOWN = 2000


@dataclass(frozen=True, kw_only=True)
class Access:
    """What clients of a server may do, all of it within one tenant.

    `who` is the name under which they answer and cancel, where the transport does not say who they are. `principal` is
    on whose authority runs act (default: whoever starts them). Approvals are decided only of the roles `approvals`, and
    never by whom the run acts for. Questions are answered to any role, or only to those of `answers`.
    """

    who: str
    tenant: str = "default"
    principal: str | None = None
    approvals: frozenset[str] = frozenset()
    answers: frozenset[str] | None = None
    queue: str = "default"
    wait: timedelta = timedelta(seconds=20)
    """How long a call waits for the end of its run, for a client that does not know tasks."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the store says of a run. `offered` are approvals about which the caller may decide, `elsewhere` the rest."""

    row: RunRow
    questions: list[Question] = field(default_factory=list)
    asked_elsewhere: list[Question] = field(default_factory=list)
    offered: list[ApprovalRow] = field(default_factory=list)
    elsewhere: list[ApprovalRow] = field(default_factory=list)
    doubts: list[OperationRow] = field(default_factory=list)
    served: bool = True
    ended: kinds.Ended | None = None
    result: str | None = None
    unreadable: str = ""


async def look(store: Store, approvals: Approvals, row: RunRow, access: Access, caller: str) -> Seen:
    """Read what is to be known of a run."""
    doubts: list[OperationRow] = []
    if row.ended or row.status == "blocked":
        doubts = [one for one in await store.operations(row.tenant, row.id) if one.status in IN_DOUBT]
    if row.ended:
        try:
            ended, result = await last_entry(store, row)
        except UndecodableEntry as error:
            return Seen(row, doubts=doubts, unreadable=str(error))
        return Seen(row, doubts=doubts, ended=ended, result=result)
    offered, elsewhere = await _approvals(store, approvals, row, access, caller)
    asked = [one for one in await readable_questions(store, row) if not one.answered_by]
    mine = [one for one in asked if access.answers is None or one.role in access.answers]
    served = row.status != "ready" or any(one.fits(row) for one in await store.workers(within_ms=ALIVE_MS))
    return Seen(row, mine, [one for one in asked if one not in mine], offered, elsewhere, doubts, served)


async def _approvals(
    store: Store, approvals: Approvals, row: RunRow, access: Access, caller: str
) -> tuple[list[ApprovalRow], list[ApprovalRow]]:
    offered: list[ApprovalRow] = []
    elsewhere: list[ApprovalRow] = []
    asked = await approvals.list(run=row.id)
    now = await store.now() if asked else 0
    for one in asked:
        if one.expires_at <= now:
            continue
        votes = (await approvals.get(one.id)).votes
        involved = [one.requester, *(vote.who for vote in votes)]
        may = one.role in access.approvals and not any(same_person(caller, name) for name in involved if name)
        (offered if may else elsewhere).append(one)
    return offered, elsewhere


def task_of(seen: Seen, face: Face) -> Json:
    """The task, with the members of its status. Pure."""
    row = seen.row
    status, message, more = _ended(seen, face) if row.ended else _open(seen)
    patient = status == "input_required" or row.status == "waiting"
    known: Json = {"agent": row.agent, "status": row.status, "reason": row.reason, "detail": row.detail}
    return {
        "taskId": row.id, "status": status, "statusMessage": message[:_SHOWN], "createdAt": _iso(row.created_at),
        "lastUpdatedAt": _iso(row.updated_at), "ttlMs": None,
        "pollIntervalMs": _POLL_PEOPLE_MS if patient else _POLL_MS, **more, "_meta": {"outlive/run": known},
    }  # fmt: skip


def _ended(seen: Seen, face: Face) -> tuple[TaskStatus, str, Json]:
    row, doubts = seen.row, _doubts(seen.doubts)
    if seen.ended is None:
        return "failed", seen.unreadable, {"error": {"code": _INTERNAL_ERROR, "message": seen.unreadable}}
    if row.status == "succeeded":
        try:
            text, structured = face.write(seen.result or "null")
        except UndecodableEntry as error:
            return "failed", str(error), {"error": {"code": _INTERNAL_ERROR, "message": str(error)}}
        result: Json = {"content": [_text(text)], "isError": False}
        if face.output_schema is not None:
            result["structuredContent"] = structured
        return "completed", "succeeded", {"result": result}
    if row.status == "cancelled":
        return "cancelled", f"cancelled: {seen.ended.reason or 'somebody asked for it'}{doubts}", {}
    raised = seen.ended.error
    why = f"{raised.type}: {raised.message}" if raised is not None else seen.ended.reason
    said = f"expired at its deadline{doubts}" if row.status == "expired" else f"the run failed: {why}{doubts}"
    return "completed", said, {"result": {"content": [_text(said)], "isError": True}}


def _open(seen: Seen) -> tuple[TaskStatus, str, Json]:
    row = seen.row
    requests: Json = {QUESTION + one.id: _question(one) for one in seen.questions}
    requests |= {APPROVAL + one.id: _approval(one) for one in seen.offered}
    reasons = [f"it asks {one.role}: {one.text}" for one in (*seen.questions, *seen.asked_elsewhere)]
    reasons += [f"{one.tool} waits for an approval by {one.role}" for one in (*seen.offered, *seen.elsewhere)]
    if seen.elsewhere or seen.asked_elsewhere:
        reasons.append(f"some of that is not decided here: see `outlive show {row.id}`")
    if row.status == "blocked":
        what = ": ".join(filter(None, (row.reason, row.detail)))
        reasons.append(f"blocked: {what}{_doubts(seen.doubts)}; a person decides: see `outlive show {row.id}`")
    if row.paused_at is not None:
        reasons.append(f"paused; `outlive resume {row.id}` lets it go on")
    if requests or (reasons and row.status != "running"):
        return "input_required", "; ".join(reasons), {"inputRequests": requests}
    return "working", "; ".join([_going(seen), *reasons]), {}


def _going(seen: Seen) -> str:
    row = seen.row
    if row.status == "running":
        return "a worker drives it"
    if not seen.served:
        return f"no live worker serves {row.agent} in the queue {row.queue}: it waits for one"
    return f"it is {row.status}" + (f": {row.detail or row.reason}" if row.detail or row.reason else "")


def _doubts(doubts: Iterable[OperationRow]) -> str:
    """That something may have happened and nobody knows, where it is so."""
    names = ", ".join(f"{one.tool} (operation {one.id})" for one in doubts)
    return f"; it is not known whether this happened: {names}" if names else ""


def _question(one: Question) -> Json:
    kinds_of: dict[str, str] = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
    answer: Json = {"type": kinds_of.get(one.expects, "string"), "title": "answer"}
    if one.expects not in kinds_of:
        answer["description"] = f"a {one.expects or 'value'} as JSON"
    message = f"{one.text} (asked of {one.role} by run {one.run})"
    return _form(message, {"answer": answer}, ["answer"])


def _approval(one: ApprovalRow) -> Json:
    message = (
        f"Run {one.run} wants to call {one.tool} with {one.arguments}. It takes an approval by {one.role}"
        f" ({one.quorum} of them), until {_iso(one.expires_at)}."
    )
    decision: Json = {"type": "string", "enum": ["approve", "reject"], "title": "decision"}
    return _form(message, {"decision": decision, "why": {"type": "string", "title": "why"}}, ["decision"])


def _form(message: str, properties: Json, required: list[str]) -> Json:
    schema: Json = {"type": "object", "properties": properties, "required": required}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


def said(task: Json) -> Json:
    """The result of a call, from a task that has one; else that it goes on, as text, and how to ask for more."""
    if task["status"] == "completed":
        return {**_member(task, "result"), "resultType": "complete"}
    run = task["taskId"]
    if task["status"] in ("failed", "cancelled"):
        return {"content": [_text(f"run {run}: {task['statusMessage']}")], "isError": True, "resultType": "complete"}
    text = (
        f"Run {run} goes on, and is not lost if nobody asks: {task['statusMessage']}.\n"
        f"Do not start it again. Ask for it with the tool outlive_status and {json.dumps({'run': run})}."
    )
    return {"content": [_text(text)], "isError": False, "resultType": "complete"}


def _member(task: Json, name: str) -> Json:
    member = task[name]
    assert isinstance(member, dict)
    return member


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
