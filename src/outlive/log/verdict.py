"""What a late answer means for an operation, by what is recorded of it. Pure."""

from __future__ import annotations

from typing import Literal

from outlive.model.operation import Effect, OperationStatus


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
    if status in ("pending", "unknown") and same:
        return "settles"
    if answer == "raised":
        return "no news"
    if status in ("absent", "retrying", "held") and same:
        return "settles"
    if status in ("succeeded", "compensated") and (same or payload == outcome):
        return "confirms"
    return "duplicate"
