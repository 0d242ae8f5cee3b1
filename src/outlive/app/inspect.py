"""Read-only views of runs for people and programs: a run's log as lines, followed as it grows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from typing import Literal

from outlive.engine.later import moment
from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.model.clock import Clock
from outlive.model.errors import UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.store.port import Store

_PAGE = 500
Mood = Literal["good", "bad", "doubt", "wait", "plain"]


@dataclass(frozen=True, slots=True)
class Line:
    """One entry as people read it. `mood` says what colour it deserves."""

    seq: int
    at: int
    epoch: int
    kind: str
    scope: str
    text: str
    mood: Mood
    data: dict[str, object]
    payload: str | None


async def lines(store: Store, tenant: Tenant, run: str, *, after: int = -1) -> AsyncIterator[Line]:
    """The log from behind `after` to where it ends now. Raises UnknownRun, UndecodableEntry."""
    if await store.run(tenant, RunId(run)) is None:
        raise UnknownRun(run=run)
    while True:
        page = await store.entries(tenant, RunId(run), after=after, limit=_PAGE)
        for entry in page:
            yield line(entry)
            after = entry.seq
        if len(page) < _PAGE:
            return


async def follow(store: Store, clock: Clock, tenant: Tenant, run: str, *, after: int = -1) -> AsyncIterator[Line]:
    """The log as it grows, until the run has ended. A reader that comes back with its last `seq` misses nothing."""
    while True:
        row = await store.run(tenant, RunId(run))
        async for one in lines(store, tenant, run, after=after):
            yield one
            after = one.seq
        if row is not None and row.ended and after >= row.head.seq - 1:
            return
        await clock.sleep(0.2)


def line(entry: Entry) -> Line:
    """An entry as a line."""
    fact = kinds.read(entry)
    text, mood = _say(fact)
    data = {one.name: value for one in fields(fact) if (value := getattr(fact, one.name)) not in ("", None, {}, [])}
    return Line(
        entry.seq, entry.at, entry.epoch, entry.kind, entry.scope, text, mood, json.loads(json.dumps(data,
        default=vars)),
        entry.payload,
    )  # fmt: skip


def _say(fact: kinds.Fact) -> tuple[str, Mood]:  # noqa: PLR0911 - one answer per kind
    match fact:
        case kinds.Started():
            return f"{fact.agent} version {fact.version}", "plain"
        case kinds.ClaimedBy():
            return f"{fact.why} by {fact.owner}", "doubt" if fact.why in ("takeover", "again") else "plain"
        case kinds.StepDone() | kinds.Done() | kinds.StepTried():
            failed = f" raised {fact.error.type}: {fact.error.message}" if fact.error else ""
            return fact.shown + failed, "bad" if fact.error else "good"
        case kinds.Proposed() | kinds.Held() | kinds.Shared():
            return _say_waiting(fact)
        case kinds.Call():
            return fact.shown or fact.name, "plain"
        case kinds.Forked():
            why = f": {fact.why}" if fact.why else ""
            return f"from {fact.parent} at entry {fact.at}, by {fact.who}{why}", "plain"
        case kinds.Suspended():
            return fact.why, "wait"
        case kinds.Blocked():
            return f"{fact.reason}: {fact.detail}", "bad"
        case kinds.EntriesLost():
            return f"entries {fact.first}-{fact.last} were acknowledged and are gone: {'; '.join(fact.entries)}", "bad"
        case kinds.Ended():
            why = f": {fact.error.type}: {fact.error.message}" if fact.error else f" {fact.reason}".rstrip()
            return fact.status + why, "good" if fact.status == "succeeded" else "bad"
        case kinds.Cancelling() | kinds.Paused() | kinds.Resumed() | kinds.TooLate():
            return _say_request(fact)
        case _:
            return _say_operation(fact)


def _say_waiting(fact: kinds.Proposed | kinds.Held | kinds.Shared) -> tuple[str, Mood]:
    if isinstance(fact, kinds.Shared):
        why = f": {fact.error.message}" if fact.status == "conflict" and fact.error else ""
        said = f"{fact.shown} is not sent: business key {fact.business_shown}, {fact.theirs} of run {fact.run}"
        return f"{said}: {fact.status}{why}", "good" if fact.status == "succeeded" else "bad"
    if isinstance(fact, kinds.Held):
        return f"{fact.operation} {fact.shown} is held: run {fact.run}, {fact.theirs}: {fact.status}", "doubt"
    return f"{fact.shown} waits for {fact.quorum} of {fact.role}: {fact.approval}", "wait"


def _say_operation(fact: kinds.Fact) -> tuple[str, Mood]:  # noqa: PLR0911 - one answer per kind
    match fact:
        case kinds.Outcome():
            error = f": {fact.error.type}: {fact.error.message}" if fact.error else ""
            return (
                f"{fact.operation} {fact.status} ({fact.how}){error}",
                "good" if fact.status == "succeeded" else "bad",
            )
        case kinds.InDoubt():
            return f"{fact.operation}: {fact.why}", "doubt"
        case kinds.LookedUp():
            note = f": {fact.note}" if fact.note else ""
            return f"{fact.operation}: {fact.answer}{note}", "doubt" if fact.answer == "unclear" else "plain"
        case kinds.Absent():
            return f"{fact.operation} did not happen ({fact.how})", "plain"
        case kinds.NotActed():
            return f"{fact.operation} was not sent: {fact.error.type}: {fact.error.message}", "bad"
        case kinds.Resolved():
            return f"{fact.operation} {fact.decision}, says {fact.who}: {fact.why}", "good"
        case kinds.Evidence():
            return (
                f"{fact.operation} attempt {fact.attempt} {fact.answer}: {fact.verdict}",
                "bad" if fact.verdict == "duplicate" else "plain",
            )
        case kinds.Noted():
            return f"{fact.operation} {fact.facts}", "plain"
        case kinds.Later():
            return f"{fact.operation} waits for its outcome until {moment(fact.until)}", "wait"
        case kinds.ScopeCancelled() | kinds.Released():
            return fact.why, "wait"
        case kinds.Joined():
            return f"{fact.branch} {fact.how}", "plain"
        case _:
            return _say_decided(fact)


def _say_decided(fact: kinds.Fact) -> tuple[str, Mood]:
    match fact:
        case kinds.Decided() | kinds.Reminded():
            return _say_approval(fact)
        case kinds.Completed():
            return _say_completed(fact)
        case kinds.Adopted():
            return f"{fact.how} at entry {fact.entry}: {fact.shown}, says {fact.who}: {fact.why}", "good"
        case kinds.StateAdopted():
            return f"the state of entry {fact.entry}, of version {fact.of}, says {fact.who}: {fact.why}", "good"
        case kinds.Retried():
            return f"by {fact.who}: {fact.why}", "plain"
        case _:
            return "", "plain"


def _say_completed(fact: kinds.Completed) -> tuple[str, Mood]:
    by = f", says {fact.who}" if fact.who else ""
    why = f": {fact.why}" if fact.why else ""
    moods: dict[str, Mood] = {"settles": "good", "duplicate": "bad", "contradicts": "bad", "too early": "doubt"}
    text = f"{fact.operation} attempt {fact.attempt} {fact.answer} ({fact.key}){by}: {fact.verdict}{why}"
    return text, moods.get(fact.verdict, "plain")


def _say_request(fact: kinds.Cancelling | kinds.Paused | kinds.Resumed | kinds.TooLate) -> tuple[str, Mood]:
    who = f"by {fact.who}: {fact.why}".removesuffix(": ") if fact.who else fact.why
    match fact:
        case kinds.Cancelling():
            return who, "bad"
        case kinds.TooLate():
            return f"{fact.what} {who}", "plain"
        case _:
            return who, "wait"


def _say_approval(fact: kinds.Decided | kinds.Reminded) -> tuple[str, Mood]:
    if isinstance(fact, kinds.Reminded):
        return f"{fact.approval}: {fact.role} was reminded", "wait"
    by = f" by {', '.join(fact.by)}" if fact.by else ""
    why = f": {fact.why}" if fact.why else ""
    return f"{fact.approval} {fact.decision}{by}{why}", "good" if fact.decision == "approved" else "bad"
