"""Calls that are harmless to repeat: steps and `read` tools. One entry each, written when the outcome is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from outlive.engine import failures
from outlive.engine.attempt import Attempt
from outlive.engine.callables import LateAnswer
from outlive.engine.journal import Also, Item
from outlive.engine.scope import Scope
from outlive.log import kinds
from outlive.log.codec import Codec
from outlive.log.fold import Call
from outlive.model.errors import Diverged, Rejected, UndecodableEntry
from outlive.model.operation import Pending, Retry
from outlive.model.signals import Unwind


@dataclass(frozen=True, slots=True)
class Asked:
    """A call as user code asked for it, in the terms of the log."""

    name: str
    digest: str
    shown: str
    line: str


@dataclass(frozen=True, slots=True)
class Repeatable:
    """How a harmless call is made and repeated. `body` takes the number of the attempt."""

    asked: Asked
    tool: bool
    body: Callable[[int], Awaitable[object]]
    result: Codec[object]
    timeout: timedelta
    retry: Retry
    raises: tuple[type[Exception], ...] = ()
    allowed: Callable[[], Awaitable[bool]] | None = None
    """Commits what has to be before it is executed; False when it may not be, and the log has the outcome."""


@dataclass(frozen=True, slots=True)
class Got:
    """What one execution of a body gave: the JSON text of its result, or the error."""

    text: str | None = None
    error: kinds.ErrorRecord | None = None
    raised: BaseException | None = None
    pending: Pending | None = None
    """It has said that its result comes later."""


class RanOut(BaseException):
    """A time-out of ours. Not an Exception: whatever a tool declares, this is none of its outcomes."""


async def repeat(attempt: Attempt, scope: Scope, key: str, what: Repeatable, call: Call | None) -> Call:
    """Make the call until it has an outcome; go on where an earlier worker stopped."""
    number = call.attempt if call is not None else 0
    if call is not None and call.retry_at:
        await attempt.wait_until(scope, call.retry_at, f"retry of {what.asked.shown}")
    while True:
        number += 1
        await attempt.gate(scope)
        if what.allowed is not None and not await what.allowed():
            return attempt.fold.keys[key]
        scope.executing = True
        await attempt.journal.flush()
        with attempt.streamed.within(key, what.asked.name, number):
            got = await execute(attempt, what.body, number, what.result, what.timeout, what.asked.name, what.raises)
        declared = got.raised is not None and isinstance(got.raised, what.raises)
        again = got.raised is not None and not declared and number < what.retry.attempts
        if again and got.error is not None and got.raised is not None:
            await _tried(attempt, scope, key, what, number, got.error, got.raised)
            continue
        fact = kinds.StepDone(
            name=what.asked.name, digest=what.asked.digest, shown=what.asked.shown, attempt=number, tool=what.tool,
            error=got.error, declared=declared,
        )  # fmt: skip
        await attempt.journal.append(Item(fact, scope.name, key, got.text), also=Also(progress=True))
        scope.executing = False
        await attempt.recorded(scope)
        return attempt.fold.keys[key]


async def _tried(
    attempt: Attempt, scope: Scope, key: str, what: Repeatable, number: int, error: kinds.ErrorRecord,
    raised: BaseException,
) -> None:  # fmt: skip
    delay = what.retry.delay_ms(number, attempt.kit.clock.random(), failures.retry_after(raised))
    retry_at = attempt.kit.time.now() + delay
    fact = kinds.StepTried(
        name=what.asked.name, digest=what.asked.digest, shown=what.asked.shown, attempt=number, tool=what.tool,
        error=error, retry_at=retry_at,
    )  # fmt: skip
    await attempt.journal.append(Item(fact, scope.name, key))
    scope.executing = False
    await attempt.wait_until(scope, retry_at, f"retry of {what.asked.shown}")


async def execute(
    attempt: Attempt, body: Callable[[int], Awaitable[object]], number: int, codec: Codec[object], timeout: timedelta,
    name: str, raises: tuple[type[Exception], ...] = (), *, may_wait: bool = False,
) -> Got:  # fmt: skip
    """Run a body once, bounded in time, and write down what it gave. With `may_wait` its result may come later.

    Never raises but for a cancellation from outside.
    """
    task = asyncio.current_task()
    bound = asyncio.timeout(timeout.total_seconds())
    try:
        async with bound:
            value = await body(number)
    except TimeoutError as error:
        if not bound.expired():
            return Got(error=failures.record(error, attempt.kit.scrubber, raises), raised=error)
        late = next(iter(error.__cause__.args), None) if error.__cause__ is not None else None
        if not isinstance(late, LateAnswer):
            message = f"{name} did not end within {timeout.total_seconds():g} s"
            return Got(error=kinds.ErrorRecord(type="TimedOut", message=message), raised=RanOut(message))
        if late.error is not None:
            return Got(error=failures.record(late.error, attempt.kit.scrubber, raises), raised=late.error)
        value = late.value  # the thread could not be stopped, so what it did is known: that is the outcome
    except Unwind:
        raise
    except BaseException as error:  # also what is no Exception: an effect may have happened
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        return Got(error=failures.record(error, attempt.kit.scrubber, raises), raised=error)
    if may_wait and isinstance(value, Pending):
        return Got(pending=value)
    try:
        return Got(text=failures.clean(attempt.kit.scrubber, codec, codec.encode(value, where=name), name))
    except Exception as error:  # noqa: BLE001 - validators of a user's types may raise anything
        return Got(error=failures.record(error, attempt.kit.scrubber))


def told(call: Call, result: Codec[object], raises: tuple[type[Exception], ...]) -> object:
    """What user code is given for a recorded call, the same live and on replay: the result, or the exception raised."""
    if call.barred is not None:
        raise failures.barred(call, call.barred)
    if call.error is not None:
        if call.asked is not None and call.asked.decision == "rejected":
            raise Rejected(name=call.name, operation=call.asked.operation, reason=call.error.message)
        if call.declared:
            rebuilt = failures.declared(call.error, raises)
            if rebuilt is None:
                raise Diverged(
                    has=f"{call.shown}, which raised {call.error.type}",
                    asks="a tool that does not declare it",
                    line="",
                    seq=call.seq,
                )
            raise rebuilt
        if call.kind == "step":
            raise failures.step_failed(call.name, call.error)
        status = call.sent.status if call.sent is not None else "failed"
        raise failures.tool_failed(call.name, call.sent.id if call.sent else call.key, call.error, status)
    try:
        return result.decode(call.payload if call.payload is not None else "null", where=f"the result of {call.shown}")
    except UndecodableEntry as error:
        raise Diverged(
            has=f"a result of {call.shown}", asks=f"another type: {error.why}", line="", seq=call.seq
        ) from error
