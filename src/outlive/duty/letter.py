"""What a receiver gets: a notification as JSON, with a line for people. Pure, and the same bytes at each attempt."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime

from outlive.model.notice import Notification


def body(notification: Notification) -> bytes:
    """The JSON document, in UTF-8."""
    one = notification
    whole = {
        "id": one.id, "kind": one.kind, "tenant": one.tenant, "run": one.run, "agent": one.agent, "seq": one.seq,
        "role": one.role, "at": _iso(one.at), "facts": one.facts, "text": line(one),
    }  # fmt: skip
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def line(notification: Notification) -> str:
    """One line that says what is the matter, and what to look at."""
    one, facts = notification, notification.facts
    then = f"see: outlive show {shlex.quote(one.run)}"
    match one.kind:
        case "blocked" | "poison" | "entries lost" if "reason" in facts:
            what = f"is blocked: {facts['reason']}: {facts.get('detail', '')}"
        case "entries lost":
            what = f"has ended, and the database has lost entries {facts.get('first')}-{facts.get('last')} of its log"
        case "unknown operation" if "operations" in facts:
            what = f"has operations of which it is not known whether they happened: {facts.get('why', '')}"
        case "unknown operation":
            what = f"does not know whether {facts.get('tool')} ({facts.get('operation')}) happened: {facts.get('why')}"
        case "duplicate effect":
            what = f"may have acted twice by {facts.get('tool')} ({facts.get('operation')})"
        case "question":
            what, then = f"asks {one.role or 'somebody'}: {facts.get('question', '')}", _answering(one)
        case "approval" | "reminder":
            asked = f"to approve {facts['shown']}" if "shown" in facts else "to decide about an approval"
            what, then = f"waits for {one.role} {asked}", f"see: outlive approvals {facts.get('approval', '')}"
        case "deadline near":
            what = f"has until {facts.get('deadline')}, and is {facts.get('status')}"
        case "stalled run":
            why = "this run blocks it" if facts.get("blocks") else f"one of its {facts.get('runs')} runs blocks it"
            loop = f"the event loop of {facts.get('worker')} (pid {facts.get('pid')})"
            what = f"stands still: {loop} has not turned for {facts.get('for_s')} s, {why}"
        case "test":
            return "this is a test: nothing is the matter"
        case kind:
            what = f"has something to tell: {kind}"
    return f"run {one.run} ({one.agent}) {what}; {then}"


def _answering(one: Notification) -> str:
    """The command that answers, as a shell reads it."""
    return f"answer: outlive answer {shlex.quote(one.run)} {shlex.quote(str(one.facts.get('question_id', '')))} ANSWER"


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
