"""What happens to an operation in doubt: it is repeated under its key, looked up, or handed to a person.

A look-up that says *did not happen* is believed only when no request can be on its way any more (`not_before`); one
that cannot say is asked again with backoff, a bounded number of times. Every look-up and its answer is an entry.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from outlive.engine import failures
from outlive.engine.callables import run_callable
from outlive.engine.doubt import left_to_wait_ms
from outlive.engine.later import denied, given_up
from outlive.engine.scope import Parked
from outlive.log import kinds
from outlive.log.fold import Call, Sent
from outlive.model.operation import DidNotHappen, Happened, Retry, Unclear
from outlive.model.signals import Unwind

if TYPE_CHECKING:
    from outlive.engine.send import Send

LOOKUPS = Retry(attempts=10, first=timedelta(seconds=1), most=timedelta(minutes=1))
LOOKUP_TIMEOUT = timedelta(seconds=60)


async def settle(send: Send, call: Call, sent: Sent) -> None:
    """One move towards knowing; the caller looks at what is recorded then. Parks where a person is needed."""
    policy, attempt = send.tool.policy, send.attempt
    now = attempt.kit.time.now()
    # What the other side has taken on is looked up, where that is possible, before it is asked for again.
    repeats = send.dedupes(sent) and sent.spent < send.policy.retry.attempts
    if sent.denied:
        await denied(send, call, sent)
    elif repeats and not (sent.until and policy.reconcile is not None):
        await attempt.wait_until(send.scope, sent.again_at, f"repeating {send.asked.shown}", cancellable=False)
        await send.send_again(call)
    elif policy.reconcile is None:
        await _ask_a_person(send, sent, "it cannot be looked up")
    elif sent.lookups >= LOOKUPS.attempts:
        await _ask_a_person(send, sent, f"{sent.lookups} look-ups gave no answer")
    elif now < sent.again_at:
        await attempt.wait_until(send.scope, sent.again_at, f"look-up of {send.asked.shown}", cancellable=False)
    else:
        await _look_up(send, call, sent)


async def leave(send: Send, call: Call, sent: Sent) -> None:
    """The run is being cancelled: nothing is sent again, and nobody is waited for. What can be known at once is asked
    for once; the rest is in doubt, for a person to settle whenever.
    """
    if sent.status == "later":
        await send.record(given_up(send, call, sent, "the run was cancelled"))
    if sent.status == "pending":
        await send.record(send.doubt(call, sent, "its worker was lost, and the run was cancelled", lost=True))
    if sent.status == "unknown" and send.tool.policy.reconcile is not None and not sent.lookups:
        await _look_up(send, call, sent)


async def _ask_a_person(send: Send, sent: Sent, why: str) -> None:
    detail = f"operation {sent.id} {send.asked.shown}: {why}"
    await send.attempt.park(
        send.scope, Parked("a person decides", block="operation in doubt", detail=detail, cancellable=False)
    )


async def _look_up(send: Send, call: Call, sent: Sent) -> None:
    attempt = send.attempt
    send.scope.executing = True
    try:
        await attempt.journal.flush()
        answer = await _answer(send, call, sent)
        if sent.status != "unknown":
            return  # a person, or evidence, was faster
        await _record(send, call, sent, answer)
    finally:
        send.scope.executing = False
        attempt.changed.set()


async def _answer(send: Send, call: Call, sent: Sent) -> object:
    """Happened, DidNotHappen or Unclear. A look-up that raises cannot say, whatever the tool declares as outcomes."""
    policy, scrubber = send.tool.policy, send.attempt.kit.scrubber
    op = send.operation(sent, call.attempt, send_until=None)
    assert policy.reconcile is not None
    try:
        async with asyncio.timeout(LOOKUP_TIMEOUT.total_seconds()):
            return await run_callable(policy.reconcile, op)
    except TimeoutError:
        return Unclear(f"the look-up did not end within {LOOKUP_TIMEOUT.total_seconds():g} s")
    except Unwind:
        raise
    except BaseException as error:  # a look-up that fails, however it does, says nothing about the effect
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        failed = failures.record(error, scrubber)
        return Unclear(f"{failed.type}: {failed.message}")


async def _record(send: Send, call: Call, sent: Sent, answer: object) -> None:
    attempt, number = send.attempt, sent.lookups + 1
    now, left_ms = attempt.kit.time.now(), left_to_wait_ms(attempt.kit, sent.id)
    again_at = now + LOOKUPS.delay_ms(number, attempt.kit.clock.random())
    payload = None
    match answer:
        case Happened():
            try:
                codec, where = send.tool.signature.result, f"look-up of {send.tool.name}"
                text = codec.encode(answer.outcome, where=where)
                payload = failures.clean(attempt.kit.scrubber, codec, text, where)
            except Exception as error:  # noqa: BLE001 - validators of a user's types may raise anything
                answer = Unclear(failures.record(error, attempt.kit.scrubber).message)
        case DidNotHappen() if now < sent.not_before or left_ms > 0:
            again_at, number = max(sent.not_before, now + left_ms), sent.lookups
            answer = Unclear(f"it says no, but a request may still be on its way {answer.note}".rstrip())
        case DidNotHappen() | Unclear():
            pass
        case _:
            answer = Unclear(f"the look-up returned {type(answer).__name__}, not Happened, DidNotHappen or Unclear")
    await _write(send, call, sent, answer, number, again_at, payload)


async def _write(
    send: Send, call: Call, sent: Sent, answer: object, number: int, again_at: int, payload: str | None
) -> None:
    def scrub(note: object) -> str:
        return send.attempt.kit.scrubber.scrub(failures.writable(str(note or "")))

    def looked(said: kinds.Said, note: str = "", again: int = 0) -> kinds.LookedUp:
        return kinds.LookedUp(
            operation=sent.id, attempt=call.attempt, number=number, answer=said, note=scrub(note), again_at=again
        )

    match answer:
        case Happened():
            settled = kinds.Outcome(operation=sent.id, attempt=call.attempt, status="succeeded", how="lookup")
            await send.record(looked("happened", answer.note), settled, payload=payload, progress=True)
        case DidNotHappen():
            absent = kinds.Absent(operation=sent.id, attempt=call.attempt, how="lookup", note=scrub(answer.note))
            await send.record(looked("did not happen", answer.note), absent)
        case Unclear():
            await send.record(looked("unclear", answer.note, again_at))
        case _:
            raise AssertionError(answer)
