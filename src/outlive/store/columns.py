"""Between records of the model and rows of the tables, where the tables of all stores are alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, cast

from outlive.log.entry import Draft
from outlive.log.kinds import Started, draft
from outlive.model.approval import APPROVAL, Act, ApprovalRow, ApprovalStatus, Ruling, Use, Vote
from outlive.model.business import KEY, KeyFilter, KeyMark, KeyRow, KeyStatus
from outlive.model.errors import NotSerialisable
from outlive.model.ids import ApprovalId, OperationId, Owner, RunId, Tenant
from outlive.model.notice import Notice, Notification
from outlive.model.operation import Effect, OperationRow, OperationStatus
from outlive.model.run import Authority, Head, History, NewRun, RunFilter, RunRow, Status
from outlive.store.port import Stalled, WorkerRow
from outlive.store.streaming import Delta

Parameters = dict[str, object]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Row(Protocol):
    """A row of any driver: columns by name."""

    def __getitem__(self, name: str, /) -> Any: ...


def run_row(row: Row) -> RunRow:
    """A row of `run`. Columns that this release does not know are left out, and so is what cannot be read."""
    labels, damaged = _labels(row["labels"])
    return RunRow(
        tenant=Tenant(row["tenant"]),
        id=RunId(row["id"]),
        agent=row["agent"],
        version=row["version"],
        status=cast(Status, row["status"]),
        epoch=row["epoch"],
        head=Head(row["next_seq"], row["head"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        input_digest=row["input_digest"],
        origin=RunId(row["origin"]),
        queue=row["queue"],
        priority=row["priority"],
        owner=Owner(row["owner"]) if row["owner"] is not None else None,
        expires_at=row["expires_at"],
        lease_ms=row["lease_ms"],
        wake_at=row["wake_at"],
        deadline_at=row["deadline_at"],
        paused_at=row["paused_at"],
        ended_at=row["ended_at"],
        reason=row["reason"],
        detail=row["detail"],
        lapses=row["lapses"],
        prologue_seq=row["prologue_seq"],
        window_seq=row["window_seq"],
        principal=row["principal"],
        purpose=row["purpose"],
        grants=row["grants"],
        identity=row["identity"],
        root=RunId(row["root"]) if row["root"] is not None else None,
        parent=RunId(row["parent"]) if row["parent"] is not None else None,
        traceparent=row["traceparent"],
        labels=labels,
        pin=row["pin"],
        damaged=damaged,
        fork_of=RunId(row["fork_of"]) if row["fork_of"] is not None else None,
        fork_seq=row["fork_seq"],
        forked=bool(row["forked"]),
        repeat_effects=bool(row["repeat_effects"]),
        rolls_back=RunId(row["rolls_back"]) if row["rolls_back"] is not None else None,
    )


def _labels(text: str) -> tuple[dict[str, str], str]:
    try:
        found = json.loads(text)
    except ValueError as error:
        return {}, f"its labels cannot be read: {error}"
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        return {}, "its labels are no names with texts"
    return found, ""


def operation_row(row: Row) -> OperationRow:
    """A row of `operation`."""
    return OperationRow(
        tenant=Tenant(row["tenant"]),
        run=RunId(row["run_id"]),
        id=OperationId(row["id"]),
        call=row["call"],
        tool=row["tool"],
        effect=cast(Effect, row["effect"]),
        key=row["key"],
        digest=row["digest"],
        arguments=row["arguments"],
        status=cast(OperationStatus, row["status"]),
        attempt=row["attempt"],
        epoch=row["epoch"],
        first_sent_at=row["first_sent_at"],
        updated_at=row["updated_at"],
        not_before=row["not_before"],
        outcome=row["outcome"],
        error=row["error"],
        how=row["how"],
        notes=json.loads(row["notes"]),
        duplicates=row["duplicates"],
        seq=row["seq"],
        approval=row["approval"],
        executed=row["executed"],
        compensates=OperationId(row["compensates"]),
        compensated_by=OperationId(row["compensated_by"]),
        business_key=row["business_key"],
        shared_run=RunId(row["shared_run"]),
        shared_operation=OperationId(row["shared_operation"]),
    )


def operation_parameters(row: OperationRow) -> Parameters:
    """What `put_operation` takes; tenant and run are those of the append."""
    return {
        "id": row.id,
        "call": row.call,
        "tool": row.tool,
        "effect": row.effect,
        "key": row.key,
        "digest": row.digest,
        "arguments": row.arguments,
        "status": row.status,
        "attempt": row.attempt,
        "epoch": row.epoch,
        "first_sent_at": row.first_sent_at,
        "updated_at": row.updated_at,
        "not_before": row.not_before,
        "outcome": row.outcome,
        "error": row.error,
        "how": row.how,
        "notes": to_json(row.notes),
        "duplicates": row.duplicates,
        "seq": row.seq,
        "approval": row.approval,
        "executed": row.executed,
        "compensates": row.compensates,
        "business_key": row.business_key,
        "shared_run": row.shared_run,
        "shared_operation": row.shared_operation,
    }


def approval_row(row: Row) -> ApprovalRow:
    """A row of `approval`."""
    return ApprovalRow(
        tenant=Tenant(row["tenant"]),
        run=RunId(row["run_id"]),
        id=ApprovalId(row["id"]),
        operation=OperationId(row["operation"]),
        tool=row["tool"],
        shown=row["shown"],
        arguments=row["arguments"],
        proposed=row["proposed"],
        policy=row["policy"],
        role=row["role"],
        quorum=row["quorum"],
        requester=row["requester"],
        expires_at=row["expires_at"],
        asked_at=row["asked_at"],
        status=cast(ApprovalStatus, row["status"]),
        votes=row["votes"],
        executed=row["executed"],
        edited=row["edited"],
        why=row["why"],
        decided_at=row["decided_at"],
        used_at=row["used_at"],
    )


def ask_parameters(row: ApprovalRow) -> Parameters:
    """What `ask_approval` takes; tenant and run are those of the append."""
    return {
        "id": row.id,
        "operation": row.operation,
        "tool": row.tool,
        "shown": row.shown,
        "arguments": row.arguments,
        "proposed": row.proposed,
        "policy": row.policy,
        "role": row.role,
        "quorum": row.quorum,
        "requester": row.requester,
        "expires_at": row.expires_at,
    }


def use_parameters(use: Use) -> Parameters:
    """What decides whether an approval is good; tenant and run are those of the append."""
    return {
        "approval": use.approval,
        "operation": use.operation,
        "executed": use.executed,
        "policy": use.policy,
    }


def key_row(row: Row) -> KeyRow:
    """A row of `business_key`."""
    mark = KeyMark(
        row["key"], row["shown"], row["tool"], row["digest"], RunId(row["run_id"]), OperationId(row["operation"]),
        cast(KeyStatus, row["status"]), row["outcome"], row["error"],
    )  # fmt: skip
    waiters = tuple(RunId(run) for run in json.loads(row["waiters"]))
    return KeyRow(Tenant(row["tenant"]), mark, row["created_at"], row["updated_at"], waiters, row["changes"])


def key_parameters(mark: KeyMark) -> Parameters:
    """What the statements that write a business key take, but for tenant and time."""
    return {
        "key": mark.key, "shown": mark.shown, "tool": mark.tool, "digest": mark.digest, "of_run": mark.run,
        "operation": mark.operation, "status": mark.status, "outcome": mark.outcome, "error": mark.error, "topic": KEY,
    }  # fmt: skip


def key_filter_parameters(which: KeyFilter) -> Parameters:
    """What `find_business_keys` takes, but for tenant and statuses."""
    return {
        "text": which.text, "run": which.run, "awaited": which.awaited, "limit": which.limit, "after": which.after,
    }  # fmt: skip


def vote_row(row: Row) -> Vote:
    """A row of `vote`."""
    return Vote(
        who=row["who"],
        act=cast(Act, row["act"]),
        role=row["role"],
        place=row["place"],
        to=row["to_whom"],
        why=row["why"],
        digest=row["digest"],
        edited=row["edited"],
        nonce=row["nonce"],
        at=row["at"],
    )


def said(vote: Vote) -> Parameters:
    """What a person has said, to be checked before anything is judged."""
    texts: Parameters = {
        "who": vote.who, "role": vote.role, "place": vote.place, "to": vote.to, "why": vote.why, "edited": vote.edited,
    }  # fmt: skip
    return texts


def vote_parameters(row: ApprovalRow, vote: Vote, ruling: Ruling) -> Parameters:
    """What `decide_approval` and the statements with it take, but for the time."""
    decided = ruling.status in ("approved", "rejected")
    return {
        "tenant": row.tenant,
        "id": row.id,
        "before": row.status,
        "votes": row.votes,
        "status": ruling.status,
        "executed": ruling.executed,
        "edited_arguments": ruling.edited,
        "reason": ruling.why,
        "decided": decided,
        "topic": APPROVAL,
        "sender_key": row.id,
        "body": to_json({"approval": row.id, "status": ruling.status}),
        "who": vote.who,
        "act": vote.act,
        "role": vote.role,
        "place": vote.place,
        "to_whom": vote.to,
        "why": vote.why,
        "digest": vote.digest,
        "edited": vote.edited,
        "nonce": vote.nonce,
    }


def notice_parameters(notice: Notice, first: int) -> Parameters:
    """What `add_notification` takes; tenant and run are the append's, whose first entry has the seq `first`."""
    return {
        "seq": first + notice.place,
        "kind": notice.kind,
        "id": notice.id,
        "role": notice.role,
        "facts": to_json(notice.facts),
    }


def notification(row: Row) -> Notification:
    """A row of `notification` with the agent of its run."""
    return Notification(
        tenant=Tenant(row["tenant"]),
        run=RunId(row["run_id"]),
        agent=row["agent"],
        seq=row["seq"],
        kind=row["kind"],
        id=row["id"],
        role=row["role"],
        facts=json.loads(row["facts"]),
        at=row["created_at"],
        position=row["position"],
    )


def place_parameters(which: RunFilter) -> Parameters:
    """Where a list of runs begins, as `find_runs` takes it: at most so late, and of those just then behind an id."""
    if which.behind is not None:
        return {"latest": which.behind[0], "behind": which.behind[1]}
    return {"latest": which.before if which.before is not None else _NEVER, "behind": ""}


_NEVER = 2**62


def worker_row(row: Row) -> WorkerRow:
    """A row of `worker`."""
    return WorkerRow(
        Owner(row["owner"]), row["pid"], json.loads(row["serves"]), row["started_at"], row["seen_at"],
        json.loads(row["versions"]), row["stalled_at"], row["stalled_by"], row["skew_ms"],
    )  # fmt: skip


def sign_parameters(stalled: Stalled | None, skew_ms: int | None) -> Parameters:
    """What `see_worker` takes, but for the worker and the time."""
    found = (None, "") if stalled is None else (stalled.for_ms, stalled.by)
    return {"stalled_ms": found[0], "stalled_by": found[1], "skew_ms": skew_ms}


def delta_parameters(authority: Authority, delta: Delta) -> Parameters:
    """What `add_delta` takes, but for the time. `epoch` is that of the authority, `marked` that of the attempt."""
    return {
        "tenant": authority.tenant, "run": authority.run, "epoch": authority.epoch, "token": authority.token,
        "call": delta.call, "marked": delta.epoch, "attempt": delta.attempt, "name": delta.name,
        "after_seq": delta.after_seq, "place": delta.place, "text": delta.text,
    }  # fmt: skip


def to_json(value: object) -> str:
    """Compact JSON for a column or a parameter."""
    return _encode(value)


def check_text(values: Mapping[str, object], where: str) -> None:
    """Refuse text that no database can store, before anything else of the same commit is written."""
    for name, value in values.items():
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise NotSerialisable(what=name, where=where, why="it has half of a surrogate pair") from error
            if "\0" in value:
                raise NotSerialisable(what=name, where=where, why="it has a NUL character")


def started(run: NewRun, at: int) -> Draft:
    """The first entry of a new run."""
    fact = Started(
        agent=run.agent,
        version=run.version,
        input_digest=run.input_digest,
        principal=run.principal,
        purpose=run.purpose,
        identity=run.identity,
        labels=run.labels,
        pin=run.pin,
        rolls_back=run.rolls_back or "",
    )
    return draft(fact, at=at, payload=run.input)


def run_parameters(run: NewRun, head: Head) -> Parameters:
    """What `add_run` takes, but for the time."""
    return {
        "tenant": run.tenant,
        "run": run.id,
        "agent": run.agent,
        "version": run.version,
        "next_seq": head.seq,
        "head": head.digest,
        "input_digest": run.input_digest,
        "queue": run.queue,
        "priority": run.priority,
        "deadline_ms": run.deadline_ms,
        "principal": run.principal,
        "purpose": run.purpose,
        "identity": run.identity,
        "labels": to_json(run.labels),
        "pin": run.version if run.pin else None,
        "rolls_back": run.rolls_back,
    }


def fork_parameters(run: NewRun, history: History, head: Head) -> Parameters:
    """What `add_fork` and what goes with it take, but for the time."""
    return {
        **run_parameters(run, head),
        "parent": history.parent,
        "origin": history.origin,
        "epoch": history.epoch,
        "fork_seq": history.end.seq - 1,
        "prologue_seq": history.prologue_seq,
        "window_seq": history.window_seq,
        "repeat_effects": int(history.repeat_effects),
    }
