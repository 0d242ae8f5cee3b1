"""A run that is to end: the request, what is recorded when it is met, and how the run's end says so.

A cancellation has one place in the log: after all calls of the root scope that have an entry before it. One that is in
flight there is *cut*: it raises the cancellation, live and on every replay, whatever becomes of it. The scopes of its
branches are cancelled in the same commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from outlive.engine.journal import Item, Journal
from outlive.engine.replay import branch_scope
from outlive.log import kinds
from outlive.log.fold import Call, Fold
from outlive.model.run import Status
from outlive.store.port import Change

GRACE_MS = 30_000
LATE = "its deadline passed"
# Why a scope is cancelled: not because a branch failed or won.
WITH_RUN = "the run is cancelled"


@dataclass(frozen=True, slots=True)
class Request:
    """The body of a request in a run's inbox. `grace_ms` is how long clean-up may take, from when the code is told."""

    what: Literal["cancel", "pause"]
    who: str
    why: str
    grace_ms: int = GRACE_MS


_request: TypeAdapter[Request] = TypeAdapter(Request)


def written(request: Request) -> str:
    """A request as the text of an inbox row."""
    return _request.dump_json(request).decode()


def read(body: str) -> Request:
    """The inverse. Raises ValueError for what is none."""
    return _request.validate_json(body)


def is_pause(body: str) -> bool:
    """Whether an inbox row asks for a pause."""
    try:
        return read(body).what == "pause"
    except ValueError:
        return False


def answers(journal: Journal, requests: Sequence[Request]) -> Iterator[Item]:
    """The entries that meet requests, at the moment at which they get their place."""
    for request in requests:
        if request.what == "pause" and journal.row.paused_at is not None and not journal.row.ended:
            continue  # it is paused already: that the request is marked as read is the answer
        if request.what == "pause" or journal.row.ended or journal.fold.cancelling is not None:
            yield Item(kinds.TooLate(what=request.what, who=request.who, why=request.why))
        else:
            until = journal.time.now() + request.grace_ms
            yield from _interruption(
                journal, kinds.Cancelling(cause="cancel", grace_until=until, who=request.who, why=request.why)
            )


def late(journal: Journal, grace_ms: int) -> list[Item]:
    """The entries of a deadline that has passed; none where the run is being cancelled already."""
    deadline = journal.row.deadline_at
    if deadline is None or journal.fold.cancelling is not None:
        return []
    return list(_interruption(journal, kinds.Cancelling(cause="deadline", grace_until=deadline + grace_ms, why=LATE)))


def _interruption(journal: Journal, fact: kinds.Cancelling) -> Iterator[Item]:
    root = journal.fold.current.get("")
    last = root.calls[-1] if root is not None and root.calls else None
    if last is not None and _unfinished(last) and journal.seam.in_call(last.key):
        for scope in _below(journal.fold, last):
            yield Item(kinds.ScopeCancelled(why=WITH_RUN), scope)
        fact = replace(fact, cut=last.key)
    yield Item(fact)


def _unfinished(call: Call) -> bool:
    """Whether it may be in flight, as far as the log tells. That branches have ended well is not recorded."""
    return call.joined is None if call.kind == "branches" else not call.done


def _below(fold: Fold, call: Call) -> Iterator[str]:
    """The scopes that may be open below a call."""
    for name in call.branches:
        scope = branch_scope(call.key, name)
        yield scope
        log = fold.current.get(scope)
        if log is not None and log.calls and _unfinished(log.calls[-1]):
            yield from _below(fold, log.calls[-1])


def asks_to_end(requests: Sequence[Request]) -> Request | None:
    """The first request that the run ends: the one that counts."""
    return next((one for one in requests if one.what == "cancel"), None)


def end_of(
    fold: Fold, error: kinds.ErrorRecord | None = None, *, asked: Sequence[Request] = ()
) -> tuple[kinds.Ended, Change]:
    """How a run ends that was cancelled, or is with these requests, which the same append takes."""
    fact = fold.cancelling
    if fact is None and (request := asks_to_end(asked)) is not None:
        fact = kinds.Cancelling(cause="cancel", grace_until=0, who=request.who, why=request.why)
    if fact is None or fact.cause == "deadline":
        return _ended("expired", LATE, "deadline", "", error)
    detail = f"{fact.who}: {fact.why}".removeprefix(": ").removesuffix(": ")
    return _ended("cancelled", f"cancelled by {detail}" if detail else "cancelled", "cancel", detail, error)


def terminated(who: str, why: str) -> tuple[kinds.Ended, Change]:
    """How a run ends that was terminated."""
    return _ended("cancelled", f"terminated by {who}: {why}", "terminated", f"{who}: {why}", None)


def _ended(
    status: Literal["cancelled", "expired"], said: str, reason: str, detail: str, error: kinds.ErrorRecord | None
) -> tuple[kinds.Ended, Change]:
    as_status: Status = status
    return kinds.Ended(status=status, reason=said, error=error), Change(
        as_status, reason=reason, detail=detail, paused=False
    )
