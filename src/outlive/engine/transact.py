"""How a `transactional` tool is driven.

Effect and outcome in one commit, so it is never in doubt and needs no intent.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from outlive.engine import failures
from outlive.engine.callables import run_callable
from outlive.engine.calls import Got, execute
from outlive.engine.journal import Also, Item
from outlive.engine.lineage import keys_of
from outlive.engine.operation import Facts, Operation
from outlive.engine.send import Send
from outlive.log import kinds
from outlive.log.fold import Call
from outlive.model.business import KeyMark, KeyRow
from outlive.model.errors import ApprovalRefused, CodeError, StoreError
from outlive.model.operation import OperationRow
from outlive.store.within import Transaction

log = logging.getLogger("outlive.operation")


class Transact:
    """Drives a `transactional` tool: effect and outcome in one commit, so it is never in doubt and needs no intent."""

    def __init__(self, send: Send) -> None:
        self._of = send

    async def run(self, call: Call | None) -> Call:
        """Execute until there is an outcome; a failed attempt has left nothing behind."""
        of, attempt = self._of, self._of.attempt
        number = call.attempt if call is not None else 0
        if call is not None and call.retry_at:
            await attempt.wait_until(of.scope, call.retry_at, f"retry of {of.asked.shown}")
        while True:
            number += 1
            await attempt.gate(of.scope)
            if not await of.allowed_to_go():
                break
            call = attempt.fold.keys.get(of.key)
            await attempt.journal.grip.ensure(attempt.kit.lease_s / 3)
            of.scope.executing = True
            try:
                try:
                    got = await self._once(number, call)
                except ApprovalRefused as refused:
                    number -= 1
                    await of.consent.refused(refused.approval)
                    continue
                if isinstance(got, KeyRow):
                    number -= 1  # nothing was done: what has the key is looked at first
                    continue
                if isinstance(got, OperationRow):
                    # Nothing was done. Who has decided in the meantime is heard before it is tried again.
                    number -= 1
                    call = await of.hold(call, got, "transactional")
                    of.scope.executing = False
                    await of.decision(call)
                    if call.done:
                        return call
                    continue
                if got is not None and await self._again(number, got):
                    continue
            finally:
                of.scope.executing = False
                attempt.changed.set()
            break
        await attempt.recorded(of.scope)
        return attempt.fold.keys[of.key]

    async def _once(self, number: int, call: Call | None) -> Got | KeyRow | OperationRow | None:
        """None when effect and outcome are committed; otherwise what went wrong, with nothing written.

        An operation record is that of another run of the same origin, which has done the same, and a business key that
        of another operation: nothing was executed.
        """
        of, attempt = self._of, self._of.attempt
        # The database's write lock is held meanwhile: renewals wait for it too, so it must be well inside the lease.
        timeout = min(of.policy.timeout, timedelta(seconds=attempt.kit.lease_s / 3))
        while True:
            try:
                async with attempt.journal.exclusive(), attempt.journal.store.transaction() as transaction:
                    standing = await of.standing(call, transaction)
                    if standing.theirs is not None:
                        return standing.theirs
                    take = of.business.take(call)
                    if take is not None and (theirs := await self._take(transaction, take)) is not None:
                        return theirs
                    key = of.keyed(standing.key) if take is None else of.business.idempotency(take)
                    got = await self._execute(transaction, number, timeout, key)
                    if isinstance(got.raised, StoreError):
                        raise got.raised
                    if got.error is not None:
                        return got
                    done = Item(self._done(number, key, take), of.scope.name, of.key, got.text)
                    also = Also(progress=True, use=of.consent.use)
                    if await attempt.journal.append_within(transaction, done, also=also):
                        return None
            except CodeError as error:
                return Got(error=failures.record(error, attempt.kit.scrubber), raised=error)
            except StoreError as error:
                log.warning("run %s: nothing was written, trying again: %s", attempt.journal.row.id, error)
                await attempt.kit.clock.sleep(0.2)
                await attempt.journal.grip.ensure()

    async def _take(self, transaction: Transaction, take: KeyMark) -> KeyRow | None:
        attempt = self._of.attempt
        return await transaction.take_key(attempt.journal.row.tenant, take, now=attempt.kit.clock.now())

    async def _execute(self, transaction: Transaction, number: int, timeout: timedelta, key: str) -> Got:
        of, attempt = self._of, self._of.attempt
        id, _, _ = keys_of(attempt, of.scope.name, of.key)
        facts = Facts(id, key, number, dict(of.arguments))
        op: Operation[object] = Operation(
            attempt, of.tool, attempt.kit.deps, facts, connection=transaction, scope=of.scope
        )  # fmt: skip

        async def body(number: int) -> object:
            positional, named = of.tool.signature.spread(of.arguments)
            if attempt.kit.on_send is not None:
                attempt.kit.on_send(of.tool, id, of.arguments)
            with attempt.streamed.within(of.key, of.tool.name, number):
                return await run_callable(of.tool.fn, op, *positional, **named)

        return await execute(
            attempt, body, number, of.tool.signature.result, timeout, of.tool.name, of.tool.policy.raises
        )

    async def _again(self, number: int, got: Got) -> bool:
        """Record a failure and wait for the next attempt (True), or record the outcome (False)."""
        of, attempt = self._of, self._of.attempt
        declared = isinstance(got.raised, of.tool.policy.raises)
        if got.error is None or got.raised is None or declared or number >= of.policy.retry.attempts:
            take = of.business.take(attempt.fold.keys.get(of.key))
            own = keys_of(attempt, of.scope.name, of.key)[1]
            key = of.keyed(own) if take is None else of.business.idempotency(take)
            await of.record(self._done(number, key, take, got.error, declared), progress=True)
            return False
        delay = of.policy.retry.delay_ms(number, attempt.kit.clock.random(), failures.retry_after(got.raised))
        retry_at = attempt.kit.time.now() + delay
        tried = kinds.StepTried(
            name=of.asked.name, digest=of.asked.digest, shown=of.asked.shown, attempt=number, tool=True,
            error=got.error, retry_at=retry_at,
        )  # fmt: skip
        await of.record(tried)
        of.scope.executing = False
        await attempt.wait_until(of.scope, retry_at, f"retry of {of.asked.shown}")
        return True

    def _done(
        self, number: int, key: str, take: KeyMark | None, error: kinds.ErrorRecord | None = None,
        declared: bool = False,
    ) -> kinds.Done:  # fmt: skip
        of = self._of
        id, _, _ = keys_of(of.attempt, of.scope.name, of.key)
        use = of.consent.use if error is None else None
        return kinds.Done(
            name=of.asked.name, digest=of.asked.digest, shown=of.asked.shown, operation=id, idempotency_key=key,
            attempt=number, arguments=of.text(), error=error, declared=declared,
            approval=use.approval if use else "", executed=of.consent.executed if use else "",
            business_key=take.key if take else "", business_shown=take.shown if take else "",
        )  # fmt: skip
