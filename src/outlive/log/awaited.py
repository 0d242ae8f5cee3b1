"""What a log says of an operation whose outcome comes later: that it does, and what the other side has told. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlive.log import kinds

if TYPE_CHECKING:
    from outlive.log.fold import Call, Sent


def later(call: Call, sent: Sent, fact: kinds.Later) -> None:
    """The other side has taken it on. What is settled already stays so."""
    if not call.done:
        sent.status, sent.until, sent.not_before = "later", fact.until, fact.not_before


def completed(call: Call, sent: Sent, fact: kinds.Completed, payload: str | None) -> bool:
    """Fold in what the other side has told; whether that shows an effect too many."""
    if fact.verdict == "duplicate":
        sent.duplicates += 1
        return True
    if fact.verdict == "too early":
        sent.denied = True
    elif fact.verdict == "settles" and fact.answer == "happened":
        sent.status, sent.how = "succeeded", "completion"
        call.done, call.payload, call.error, call.declared = True, payload, None, False
    elif fact.verdict == "settles":
        sent.spent += cost(sent)
        sent.status = "absent"
    return False


def cost(sent: Sent) -> int:
    """What a verdict of absence costs of the retries: nothing where the worker was lost, or the doubt has cost it."""
    doubted = sent.effect == "idempotent" and sent.status == "unknown"
    return 0 if sent.lost or doubted else 1
