"""From when on *did not happen* can be believed, and the entries that turn what may have been sent into *unknown*."""

from __future__ import annotations

from collections.abc import Callable

from outlive.engine.attempt import Kit
from outlive.engine.journal import Item
from outlive.log import kinds
from outlive.log.fold import Fold, Sent
from outlive.model.operation import UNDER_WAY, OperationStatus

WHY = "the database has lost the record of it"

_LOST: frozenset[OperationStatus] = frozenset(("pending",))


def believable_at(sent: Sent, ended_at: int) -> int:
    """The moment when no request of the last attempt can be on its way any more.

    Its send window and the local call are over by then, and the other side has had the time-out of the call and
    `settle_after` to act. Database milliseconds.
    """
    return max(sent.send_by, ended_at) + sent.timeout_ms + sent.settle_ms


def watch(kit: Kit, operation: str, not_before: int) -> None:
    """This worker has seen an operation become doubtful, and measures the wait by its own clock too.

    A jump of the database's clock must not make a *no* believable at once.
    """
    kit.doubts_since[operation] = (kit.clock.boottime(), (not_before - kit.time.now()) / 1000)


def left_to_wait_ms(kit: Kit, operation: str) -> int:
    """What is left of the wait by this worker's own clock; 0 for a doubt that it has not seen begin."""
    since, wait_s = kit.doubts_since.get(operation, (0.0, 0.0))
    return max(0, int((since + wait_s - kit.clock.boottime()) * 1000)) if wait_s else 0


def doubts(
    fold: Fold, now: int, why: str, *, lost: bool, concerns: Callable[[Sent], bool] = lambda _: True,
    ended: bool = False,
) -> list[Item]:  # fmt: skip
    """An entry for each operation that is pending: whether it happened is not known.

    With `ended` also for each whose outcome was to come later: nobody waits for it any more.
    """
    return [
        Item(
            kinds.InDoubt(
                operation=call.sent.id,
                attempt=call.attempt,
                why=why,
                not_before=believable_at(call.sent, now) if call.sent.status == "pending" else call.sent.not_before,
                lost=lost and call.sent.status == "pending",
            ),
            call.scope,
            call.key,
        )
        for call in fold.in_doubt()
        if call.sent is not None and call.sent.status in (UNDER_WAY if ended else _LOST) and concerns(call.sent)
    ]
