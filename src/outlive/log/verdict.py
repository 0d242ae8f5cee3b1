"""What a late answer, or what the other side tells, means for an operation by what is recorded of it. Pure."""

from __future__ import annotations

from typing import Literal

from outlive.model.operation import OPEN, Effect, OperationStatus

# What was undone had happened before.
_HAPPENED: frozenset[OperationStatus] = frozenset(("succeeded", "compensated"))

Told = Literal["settles", "confirms", "duplicate", "contradicts", "too early", "no news"]


def verdict(
    effect: Effect,
    status: OperationStatus,
    current: int,
    outcome: str | None,
    *,
    attempt: int,
    answer: str,
    payload: str | None,
) -> Literal["settles", "confirms", "duplicate", "no news"]:
    """What a late answer about `attempt` means for an operation whose last attempt is `current`.

    It settles one in doubt, confirms what is known, or shows an effect too many. *sent late* knows no answer, but that
    a request went out after its window: news only where that attempt was already judged not to have happened.
    """  # fmt: skip
    same = attempt == current or effect == "idempotent"
    if answer == "sent late":
        return "no news" if same and status not in ("absent", "retrying", "held", "failed") else "duplicate"
    if status in OPEN and same:
        return "settles"
    if answer == "raised":
        return "no news"
    if status in ("absent", "retrying", "held") and same:
        return "settles"
    if status in _HAPPENED and (same or payload == outcome):
        return "confirms"
    return "duplicate"


def told(
    effect: Effect, status: OperationStatus, current: int, outcome: str | None, *, attempt: int, happened: bool,
    payload: str | None, early: bool,
) -> Told:  # fmt: skip
    """What it means that the other side tells of `attempt` that it happened, with the outcome `payload`, or did not.

    It settles what is *later*, in doubt, or was judged not to have happened; of what is settled it confirms or
    contradicts the outcome, or shows an effect too many. With `early` a request may still be on its way: what is in
    doubt is not settled by a *did not happen* yet. What is *later* is: the other side has had the request.
    """
    if happened:
        same = attempt == current or effect == "idempotent"
        if status in _HAPPENED and same:
            return "confirms" if payload == outcome else "contradicts"
        return verdict(effect, status, current, outcome, attempt=attempt, answer="succeeded", payload=payload)
    if attempt != current:
        return "no news"
    if status in _HAPPENED:
        return "contradicts"
    if status not in OPEN:
        return "no news"
    return "too early" if early and status != "later" else "settles"
