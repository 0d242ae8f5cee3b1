"""How an operation of an `idempotent` or `external` tool is driven: intent, send, record, retry, settle.

The machine reads only what is recorded (`Call.sent`), so that going on live and going on after a crash are the same
code. Before a send there is an intent; after it a record, or the operation is in doubt. Nothing is sent after
`send_by`, which is never later than the authority that this worker can prove.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta

from outlive.engine import failures, inbox
from outlive.engine.approval import Consent
from outlive.engine.attempt import Attempt
from outlive.engine.business import BusinessKey, acting
from outlive.engine.callables import is_async, run_callable, until_done
from outlive.engine.calls import Asked, Got, execute
from outlive.engine.definition import ToolSpec
from outlive.engine.doubt import WHY, believable_at, watch
from outlive.engine.journal import Also, Item
from outlive.engine.later import awaited
from outlive.engine.lineage import Source, Standing, has_forks, keys_of, standing, told
from outlive.engine.operation import Facts, Operation, WindowOver, sending
from outlive.engine.scope import Parked, Scope
from outlive.engine.settle import leave, settle
from outlive.log import kinds
from outlive.log.canonical import digest
from outlive.log.fold import Call, Sent
from outlive.model.approval import Approval
from outlive.model.business import KeyMark
from outlive.model.errors import ApprovalRefused, Diverged, KeyTaken, StoreError
from outlive.model.function import UserFunction
from outlive.model.operation import IN_DOUBT, Effect, OperationRow, Retry
from outlive.model.signals import NotSent, Unwind
from outlive.store.port import Message

log = logging.getLogger("outlive.operation")

_TESTIFY_TRIES = 60


@dataclass(frozen=True, slots=True)
class Policy:
    """The tool's policy with what the call's options changed."""

    timeout: timedelta
    retry: Retry
    approval: Approval | None = None
    effect_key: str | None = None


async def shielded(scope: Scope, work: Coroutine[object, object, Call]) -> Call:
    """Run an operation so that a cancellation of the waiting code cannot cut it short of its record."""
    task = scope.sending = asyncio.ensure_future(work)
    scope.shielded = True
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await until_done(task)
        raise
    finally:
        scope.shielded, scope.sending = False, None


class Send:
    """Drives one operation of an `idempotent` or `external` tool to its outcome."""

    def __init__(
        self, attempt: Attempt, scope: Scope, tool: ToolSpec, policy: Policy, asked: Asked, key: str,
        arguments: dict[str, object],
    ) -> None:  # fmt: skip
        self.attempt, self.scope, self.tool, self.policy = attempt, scope, tool, policy
        self.asked, self.key, self.arguments = asked, key, arguments
        self._met: OperationRow | None = None
        self.compensates = ""
        self.consent = Consent(self, policy.approval)
        self.business = BusinessKey(self, policy.effect_key)

    async def run(self, call: Call | None) -> Call:
        """From whatever is recorded to the outcome. Raises Unwind where the run is unloaded before."""
        self.consent.adopt()
        if call is None or call.sent is None:
            call = await self._met_again() or await self._send(call)
        while not call.done:
            sent = call.sent
            assert sent is not None
            if self.attempt.leaving(self.scope):
                await leave(self, call, sent)
                raise asyncio.CancelledError
            if sent.status == "unknown":
                await settle(self, call, sent)
            elif sent.status == "later":
                await awaited(self, call, sent)
            elif sent.status == "held":
                await self.decision(call)
                if sent.status == "held":
                    call = await self._send(call)
            elif sent.status == "pending" and not self.dedupes(sent):
                why = "no approval covers it any more" if self.consent.stale() else "the other side dedupes no longer"
                await self.record(self.doubt(call, sent, f"its worker was lost, and {why}", lost=True))
            elif sent.status in ("absent", "retrying") and sent.spent >= self.policy.retry.attempts:
                await self.give_up(call, sent)
            else:
                if sent.status == "retrying":
                    await self.attempt.wait_until(self.scope, call.retry_at, f"retry of {self.asked.shown}")
                call = await self._send(call)
        await self.attempt.recorded(self.scope)
        return call

    async def _met_again(self) -> Call | None:
        """The call, if it was sent in entries that the database has lost. Raises Diverged if it was another one."""
        id = self._orphan()
        if id is None:
            return None
        await self.attempt.gate(self.scope)
        orphan = self.attempt.fold.orphans[id]
        asked, sent = self.asked, orphan.sent
        assert sent is not None
        if orphan.digest != asked.digest:
            raise Diverged(has=f"{orphan.shown} in entries that were lost", asks=asked.shown, line=asked.line)
        facts: list[kinds.Fact] = [
            kinds.MetAgain(name=asked.name, digest=asked.digest, shown=asked.shown, operation=id)
        ]
        if sent.status == "unknown":
            watch(self.attempt.kit, id, sent.not_before)
            facts.append(
                kinds.InDoubt(operation=id, attempt=orphan.attempt, why=WHY, not_before=sent.not_before, lost=True)
            )
        await self.record(*facts)
        return self.attempt.fold.keys[self.key]

    def _orphan(self) -> str | None:
        """The operation of lost entries that this call is, under its name or a former one: then it has its key."""
        attempt, cursor = self.attempt, self.scope.cursor
        if not attempt.fold.orphans:
            return None
        for old in (None, *sorted(attempt.agent.former(self.tool.name))):
            key = self.key if old is None else cursor.key_of(old)
            id, _, _ = keys_of(attempt, self.scope.name, key)
            if id in attempt.fold.orphans:
                self.key = self.key if old is None else cursor.known_as(self.tool.name, old)
                return id
        return None

    def changed(self) -> list[str]:
        """What the tool declares of a call in flight otherwise than when it was asked for, and what holds, in words.

        Raises Diverged where what was approved does not fit the tool any more.
        """
        self.consent.adopt()
        call = self.attempt.fold.keys.get(self.key)
        if call is None:
            return []
        sent, now, found = call.sent, acting(self.tool.policy.effect), []
        if sent is not None and call.attempt and sent.effect != now:
            found.append(f"{call.shown} was sent as {sent.effect}, and is now {now}; it is treated as {sent.effect}")
        if call.asked is not None and not call.asked.over and (rule := self.consent.rule) is None:
            found.append(f"{call.shown} waits for an approval that is not asked for any more; it is sent without")
        elif call.asked is not None and not call.asked.over and rule is not None and call.asked.policy != rule.policy:
            found.append(f"{call.shown} waits for an approval under another rule; it is asked for anew")
        return found

    def keyed(self, key: str) -> str:
        """The key of what is sent: another one where other arguments were approved than were proposed."""
        executed = self.consent.executed
        return (
            key if executed == self.asked.digest else digest(self.attempt.key, b"edited", f"{key} {executed}".encode())
        )

    def dedupes(self, sent: Sent) -> bool:
        """Whether the other side still knows our key, so that repeating acts once at most, and may be done."""
        if self.consent.stale():
            return False
        window_ms = self.tool.policy.dedupes_for.total_seconds() * 1000
        return sent.effect == "idempotent" and self.attempt.kit.time.now() < sent.first_sent_at + window_ms

    async def send_again(self, call: Call) -> None:
        """One more attempt under the same key."""
        await self._send(call)

    async def leave(self, call: Call, sent: Sent) -> None:
        """See `settle.leave`."""
        await leave(self, call, sent)

    async def allowed(self) -> bool:
        """As a `read` tool needs it: there is no intent, so what it needs is used by a commit of its own."""
        while await self.consent.obtain():
            if self.consent.use is None:
                return True
            try:
                await self.attempt.journal.append_using(also=Also(use=self.consent.use))
                return True
            except ApprovalRefused as refused:
                await self.consent.refused(refused.approval)
        return False

    async def record(self, *facts: kinds.Fact, payload: str | None = None, progress: bool = False) -> None:
        """Append facts about this operation; the payload belongs to the last."""
        items = [Item(fact, self.scope.name, self.key) for fact in facts]
        items[-1] = Item(facts[-1], self.scope.name, self.key, payload)
        await self.attempt.journal.append(*items, also=Also(progress=progress))

    def text(self) -> str:
        """The arguments as they are written down: by parameter name, scrubbed."""
        text = self.tool.signature.encode(self.arguments)
        scrubbed = self.attempt.kit.scrubber.scrub(text)
        return text if scrubbed == text else json.dumps({"scrubbed": scrubbed})

    def operation(self, sent: Sent, number: int, *, send_until: float | None) -> Operation[object]:
        """The object that tool code or a look-up holds."""
        kit = self.attempt.kit
        facts = Facts(sent.id, sent.key, number, dict(self.arguments), dict(sent.notes), sent.send_by)
        return Operation(self.attempt, self.tool, kit.deps, facts, send_until=send_until, scope=self.scope)

    async def _send(self, call: Call | None) -> Call:
        attempt = self.attempt
        if call is not None and call.sent is not None:
            status = call.sent.status
            await attempt.gate(self.scope, cancellable=status not in IN_DOUBT)
            await self.hear()
            if call.done or call.sent.status != status:
                return call
        else:
            await attempt.gate(self.scope)
        # What may have been sent is sent again under its key: that was decided when it was sent first.
        fresh = call is None or call.sent is None or call.sent.status not in IN_DOUBT
        standing = await self.standing(call) if fresh else None
        if standing is not None and standing.theirs is not None:
            return await self.hold(call, standing.theirs)
        while True:
            if not fresh:
                self.consent.repeat()
            elif not await self.allowed_to_go():
                return attempt.fold.keys[self.key]
            try:
                return await self._sent(attempt.fold.keys.get(self.key), fresh=fresh)
            except KeyTaken:
                # In doubt it goes under the same key as whatever has taken that: the other side tells them apart.
                self.business.lost = not fresh
            except ApprovalRefused as refused:
                if not fresh:
                    await self.consent.lapsed(str(refused))
                    return attempt.fold.keys[self.key]
                await self.consent.refused(refused.approval)

    async def allowed_to_go(self) -> bool:
        """Whether nothing else has to come first: what its key stands for, then an approval, which may have taken long
        and changed the key. False: the call has its outcome without.
        """
        if not await self.business.free() or not await self.consent.obtain():
            return False
        return self.consent.use is None or await self.business.free()

    async def _sent(self, call: Call | None, *, fresh: bool) -> Call:
        """Intent, execution, record. Raises ApprovalRefused and KeyTaken with nothing written or sent."""
        attempt, kit = self.attempt, self.attempt.kit
        # It may have waited long for its approval: another run may have done it meanwhile.
        standing = await self.standing(call) if fresh else None
        if standing is not None and standing.theirs is not None:
            return await self.hold(call, standing.theirs)
        await attempt.journal.grip.ensure(kit.lease_s / 3)
        now = kit.clock.boottime()
        send_until = now + attempt.journal.grip.remaining()
        self.scope.executing = True
        try:
            await self._intent(call, send_until - now, standing.key if standing is not None else "", fresh)
            call = attempt.fold.keys[self.key]
            if fresh and (standing := await self.standing(call)).theirs is not None:
                self._met = standing.theirs
                return await self.hold(call, standing.theirs)
            sent = call.sent
            assert sent is not None
            op = self.operation(sent, call.attempt, send_until=send_until)
            got = await self._execute(call, sent, op)
            op.close()
            try:
                await self._recorded(call, sent, got, begun=op.begun)
            except Unwind:
                await self._testify(call, sent, got, op)
                raise
        finally:
            self.scope.executing = False
            attempt.changed.set()
        return call

    async def standing(self, call: Call | None, source: Source | None = None) -> Standing:
        """Whether another run of the same origin has done this, and under which key it is sent.

        Of what has a business key that is not asked: no run at all does it twice. Nor of what is harmless.
        """
        if self.business.needed:
            return Standing("")
        again = self.tool.policy.harmless or (call is not None and call.sent is not None and call.sent.again)
        text = self.text() if has_forks(self.attempt.journal.row) else ""
        return await standing(self.attempt, self.scope.name, self.key, self.asked, text, again=again, source=source)

    async def hold(self, call: Call | None, theirs: OperationRow, effect: Effect | None = None) -> Call:
        """Record that it is not sent, and why."""
        if call is None or call.sent is None or (call.sent.status, call.sent.theirs) != ("held", theirs.id):
            id, key, _ = keys_of(self.attempt, self.scope.name, self.key)
            first = call is None or call.sent is None
            effect = effect or (call.sent.effect if call is not None and call.sent is not None else None)
            fact = kinds.Held(
                name=self.asked.name, digest=self.asked.digest, shown=self.asked.shown, operation=id,
                effect=acting(effect or self.tool.policy.effect), idempotency_key=key, run=theirs.run,
                theirs=theirs.id, status=theirs.status,
            )  # fmt: skip
            await self.record(fact, payload=self.text() if first else None)
        return self.attempt.fold.keys[self.key]

    async def decision(self, call: Call) -> None:
        """Park until a person has decided about what is held, or nothing stands in its way any more."""
        while call.sent is not None and call.sent.status == "held":
            # Two that met with their intents would meet again and again: whoever found the other one waits.
            theirs, self._met = self._met or (await self.standing(call)).theirs, None
            if theirs is None:
                return
            await self.hold(call, theirs)
            if call.sent.status == "held":
                detail = f"operation {call.sent.id}: {told(theirs, self.asked.shown)}"
                await self.attempt.park(self.scope, Parked("a person decides", block="done elsewhere", detail=detail))

    async def hear(self) -> None:
        """Before it is sent again, or waited for: somebody may know what became of it."""
        journal = self.attempt.journal
        if (await self.attempt.patiently(lambda: inbox.take(journal), "its inbox")).taken:
            self.attempt.wake_all()

    async def _intent(self, call: Call | None, window_s: float, key: str, fresh: bool) -> None:
        """`key` is the one of a send that was asked for in its lineage, else empty: then it has the key that it had."""
        attempt, now = self.attempt, self.attempt.kit.time.now()
        # What was held and never sent is sent as if nothing were recorded of it.
        sent = call.sent if call is not None and call.attempt else None
        first = sent is None
        id, _, _ = keys_of(attempt, self.scope.name, self.key)
        use, executed = self.consent.use, self.consent.executed
        # Other arguments than before are sent: the attempts before are known not to have acted.
        edited = sent is not None and executed != (sent.executed or self.asked.digest)
        take = self.business.take(call, fresh=fresh)
        if sent is not None and not edited and not (sent.again and key):
            key = sent.key
        else:
            key = self.keyed(key) if take is None else self.business.idempotency(take)
        known = sent if take is None and sent is not None and not edited else None
        # What the tool was when it was first sent: a deploy must not make a repetition of what was external.
        effect = acting(sent.effect if sent is not None else self.tool.policy.effect)
        assert effect in ("idempotent", "external")
        fact = kinds.Intent(
            name=self.asked.name, digest=self.asked.digest, shown=self.asked.shown,
            operation=sent.id if sent else id, effect=effect, idempotency_key=key,
            approval=use.approval if use else "", executed=executed if use or edited else "",
            attempt=(call.attempt if call is not None else 0) + 1, send_by=now + int(window_s * 1000),
            first_sent_at=sent.first_sent_at if sent is not None and sent.key == key else now,
            timeout_ms=int(self.policy.timeout.total_seconds() * 1000),
            settle_ms=int(self.tool.policy.settle_after.total_seconds() * 1000), compensates=self.compensates,
            business_key=take.key if take else known.business_key if known else "",
            business_shown=take.shown if take else known.business_shown if known else "",
        )  # fmt: skip
        item = Item(fact, self.scope.name, self.key, self.text() if first or edited else None)
        if use is None and take is None:
            await attempt.journal.append(item)
        else:
            await attempt.journal.append_using(item, also=Also(use=use, take=take, marks=self.left(sent, take)))

    def left(self, sent: Sent | None, take: KeyMark | None) -> tuple[KeyMark, ...]:
        """The key that it had for other arguments, under which nothing was done."""
        if sent is None or take is None or sent.business_key in ("", take.key):
            return ()
        return (replace(take, key=sent.business_key, shown=sent.business_shown, status="free"),)

    async def _execute(self, call: Call, sent: Sent, op: Operation[object]) -> Got:
        async def body(number: int) -> object:
            positional, named = self.tool.signature.spread(self.arguments)
            before = sending.set(op)
            try:
                if self.attempt.kit.on_send is not None:
                    self.attempt.kit.on_send(self.tool, sent.id, self.arguments)
                with self.attempt.streamed.within(self.key, self.tool.name, number):
                    return await run_callable(guarded(op, self.tool.fn), op, *positional, **named)
            finally:
                sending.reset(before)  # a look-up that follows in this task is no send

        return await execute(
            self.attempt,
            body,
            call.attempt,
            self.tool.signature.result,
            self.policy.timeout,
            self.tool.name,
            self.tool.policy.raises,
            may_wait=True,
        )

    async def _recorded(self, call: Call, sent: Sent, got: Got, *, begun: bool) -> None:
        """Write what an execution gave, as what it says about the effect."""
        policy, number = self.tool.policy, call.attempt
        error = got.error
        if call.done:
            return  # somebody who knew was faster
        # The commit of the intent took so long that the tool was not even begun: that is nobody's failed attempt.
        free = isinstance(got.raised, WindowOver) and not begun
        if got.pending is not None:
            not_before = believable_at(sent, self.attempt.kit.time.now())
            watch(self.attempt.kit, sent.id, not_before)
            until = got.pending.until
            await self.record(kinds.Later(operation=sent.id, attempt=number, until=until, not_before=not_before))
        elif error is None:
            fact = kinds.Outcome(operation=sent.id, attempt=number, status="succeeded", how="call")
            await self.record(fact, payload=got.text, progress=True)
        elif got.raised is not None and isinstance(got.raised, policy.raises):
            fact = kinds.Outcome(operation=sent.id, attempt=number, status="raised", how="call", error=error)
            await self.record(fact, progress=True)
        elif got.raised is not None and isinstance(got.raised, (NotSent, *policy.not_sent)):
            delay = self.policy.retry.delay_ms(
                sent.spent + 1, self.attempt.kit.clock.random(), failures.retry_after(got.raised)
            )
            retry_at = 0 if free else self.attempt.kit.time.now() + delay
            await self.record(
                kinds.NotActed(operation=sent.id, attempt=number, error=error, retry_at=retry_at, free=free)
            )
        else:
            await self.record(self.doubt(call, sent, f"{error.type}: {error.message}"))

    def doubt(self, call: Call, sent: Sent, why: str, *, lost: bool = False) -> kinds.InDoubt:
        """The call has ended here without saying whether it acted: from when on can *did not happen* be believed."""
        not_before = believable_at(sent, self.attempt.kit.time.now())
        watch(self.attempt.kit, sent.id, not_before)
        again_at = 0
        if sent.effect == "idempotent":
            again_at = self.attempt.kit.time.now() + self.policy.retry.delay_ms(
                call.attempt, self.attempt.kit.clock.random()
            )
        return kinds.InDoubt(
            operation=sent.id, attempt=call.attempt, why=why, not_before=not_before, again_at=again_at, lost=lost,
        )  # fmt: skip

    async def give_up(self, call: Call, sent: Sent) -> None:
        """It is known not to have acted, and its retries are spent."""
        error = call.error or kinds.ErrorRecord(
            type="DidNotHappen", message="it did not happen, and its retries are spent"
        )
        await self.record(
            kinds.Outcome(operation=sent.id, attempt=call.attempt, status="failed", how="call", error=error),
            progress=True,
        )

    async def _testify(self, call: Call, sent: Sent, got: Got, op: Operation[object]) -> None:
        """The run is not ours any more, but we know what our call answered: leave it as evidence for the new owner."""
        attempt = self.attempt
        if got.error is None:
            answer = "succeeded" if got.pending is None else ""
        elif isinstance(got.raised, self.tool.policy.raises):
            answer = "raised"
        else:
            answer = "sent late" if op.sent_late else ""
        if not answer:
            return
        # If the log has lost the operation, evidence of it is understood only when that is recorded.
        await attempt.journal.examine()
        epoch = attempt.journal.grip.authority.epoch
        body = {
            "operation": sent.id, "attempt": call.attempt, "epoch": epoch, "answer": answer, "payload": got.text,
            "error": got.error and {"type": got.error.type, "message": got.error.message, "data": got.error.data},
        }  # fmt: skip
        row = attempt.journal.row
        key = f"{sent.id}:{call.attempt}:{epoch}"
        message = Message(row.tenant, row.id, inbox.EVIDENCE, key, json.dumps(body))
        for _ in range(_TESTIFY_TRIES):
            try:
                await attempt.journal.store.post(message, now=attempt.kit.clock.now())
                break
            except StoreError as error:
                log.warning("run %s: evidence of %s could not be left: %s", row.id, self.asked.shown, error)
                await attempt.kit.clock.sleep(1.0)
        else:
            log.error("run %s: evidence is lost: %s", row.id, message.body)
            return
        log.warning("run %s: %s answered after the lease was lost; left as evidence", row.id, self.asked.shown)


def guarded(op: Operation[object], fn: UserFunction) -> UserFunction:
    """The body of a tool with the send window checked first, on the thread that will send."""
    if is_async(fn):

        async def on_loop(*args: object, **kwargs: object) -> object:
            op.begin()
            return await run_callable(fn, *args, **kwargs)

        return on_loop

    def on_thread(*args: object, **kwargs: object) -> object:
        op.begin()
        return fn(*args, **kwargs)

    return on_thread
