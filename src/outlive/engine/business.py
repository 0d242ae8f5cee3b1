"""The business key of one call: whether the way is free, whose outcome it has where not, and what its commit takes.

The key is taken by the commit that lets the operation go, never before. Who finds it taken waits as a row, beside which
nothing has to be remembered: a change of the key is a message in the inbox, and the key is read anew.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from outlive.engine import marks
from outlive.engine.failures import writable
from outlive.engine.journal import Also, Item
from outlive.engine.lineage import keys_of
from outlive.engine.scope import Parked
from outlive.log import kinds
from outlive.log.canonical import digest
from outlive.log.fold import Call
from outlive.model.business import MOST_CHARACTERS, KeyMark, KeyRow
from outlive.model.errors import Refused, UndecodableEntry
from outlive.model.ids import OperationId
from outlive.model.operation import Effect

if TYPE_CHECKING:
    from outlive.engine.send import Send

DONE = "what it was asked for is settled under its business key"


class BusinessKey:
    """What makes one call the same action in every run of the tenant. `lost` says that another operation has its key
    although this one may have acted under it.
    """

    def __init__(self, send: Send, option: str | None) -> None:
        if option is not None and send.tool.policy.effect == "read":
            what = f"options(effect_key=…) of {send.tool.name}"
            raise Refused(what=what, why="a read tool does nothing that could be done once")
        self._of, self._option = send, option
        self.lost = False

    @property
    def needed(self) -> bool:
        """Whether the call has one by what the code says now."""
        return self._option is not None or self._of.tool.policy.key is not None

    def take(self, call: Call | None, *, fresh: bool = True) -> KeyMark | None:
        """What the commit before a send takes: the recorded key, as long as the arguments are those that it was taken
        for. Raises Refused for what is no key, and what the tool's own function raises.
        """
        of, sent = self._of, call.sent if call is not None else None
        executed, key, shown = of.consent.executed, "", ""
        if sent is not None and (not fresh or executed == (sent.executed or of.asked.digest)):
            key, shown = sent.business_key, sent.business_shown
        if self.lost or (not key and not (fresh and self.needed)):
            return None
        if not key:
            text = self._text()
            key = of.attempt.digest(b"business key", text.encode())
            shown = of.attempt.kit.scrubber.scrub(text)
        id = sent.id if sent is not None else keys_of(of.attempt, of.scope.name, of.key)[0]
        return KeyMark(key, shown, of.tool.name, executed, of.attempt.journal.row.id, OperationId(id))

    def _text(self) -> str:
        tool, rule = self._of.tool, self._of.tool.policy.key
        text: object = self._option
        if text is None and rule is not None:
            text = rule(**{name: self._of.arguments[name] for name in inspect.signature(rule).parameters})
        what = f"the business key of {tool.name}"
        if not isinstance(text, str):
            raise Refused(what=what, why=f"it is {type(text).__name__}; a key is a text")
        if not text.strip() or len(text) > MOST_CHARACTERS or writable(text) != text:
            why = f"a key is a text of 1 to {MOST_CHARACTERS} characters that can be stored"
            raise Refused(what=f"{what}, {text[:50]!r}", why=why)
        return text

    def idempotency(self, take: KeyMark) -> str:
        """What the other side knows the operation by: the same in every run."""
        return digest(self._of.attempt.key, b"operation of a business key", take.key.encode())

    async def free(self) -> bool:
        """Whether the call may go on to be sent. False: what its key stands for is recorded as what it has come to.

        Parks while another operation has it. Raises Unwind when the run is unloaded meanwhile.
        """
        of, attempt, scope = self._of, self._of.attempt, self._of.scope
        while True:
            await attempt.gate(scope)
            call = attempt.fold.keys.get(of.key)
            take = self.take(call)
            if take is None:
                return True
            scope.executing, seen = True, attempt.wakes  # what is read here is acted on before the attempt may end
            try:
                row = await self._read(take)
                if row is None or row.mark.status == "free" or self._ours(row, take):
                    return True
                if await self._settled(row, take):
                    return False
                parked = await self._waiting(row)
            finally:
                scope.executing = False
                attempt.changed.set()
            if parked is not None and attempt.wakes == seen:
                await attempt.park(scope, parked)

    def _ours(self, row: KeyRow, take: KeyMark) -> bool:
        same = (row.mark.run, row.mark.operation) == (take.run, take.operation)
        return same and row.mark.status in ("open", "unknown")

    async def _settled(self, row: KeyRow, take: KeyMark) -> bool:
        """Record what the key stands for, if that is known."""
        mark, of = row.mark, self._of
        if mark.tool != of.tool.name and mark.tool not in of.attempt.agent.former(of.tool.name):
            why = f"{mark.tool} has it, not {of.tool.name}: let a key begin with what it is of, as in {of.tool.name}/…"
            await self._share(row, take, "conflict", kinds.ErrorRecord(type="KeyConflict", message=why))
        elif mark.digest != take.digest:
            why = f"it was taken for other arguments of {mark.tool}: a key says all that tells one action from another"
            await self._share(row, take, "conflict", kinds.ErrorRecord(type="KeyConflict", message=why))
        elif mark.status == "compensated":
            await self._share(row, take, "compensated", kinds.ErrorRecord(type="Compensated", message=mark.shown))
        elif mark.status in ("succeeded", "raised", "abandoned"):
            try:
                error = marks.read(mark.error)
            except ValueError as failure:
                raise UndecodableEntry(where=f"the business key {mark.shown}", why=str(failure)) from failure
            await self._share(row, take, mark.status, error)
        else:
            return False
        return True

    async def _share(self, row: KeyRow, take: KeyMark, status: str, error: kinds.ErrorRecord | None) -> None:
        of, call = self._of, self._of.attempt.fold.keys.get(self._of.key)
        await of.consent.withdraw(DONE)
        fact = kinds.Shared(
            name=of.asked.name, digest=of.asked.digest, shown=of.asked.shown, operation=take.operation,
            effect=acting(of.tool.policy.effect if call is None or call.sent is None else call.sent.effect),
            idempotency_key=self.idempotency(take), arguments=of.text(), business_key=take.key,
            business_shown=take.shown, run=row.mark.run, theirs=row.mark.operation, status=_STATUSES[status],
            executed=take.digest if take.digest != of.asked.digest else "", error=error,
        )  # fmt: skip
        left = of.left(call.sent if call is not None else None, take)
        item = Item(fact, of.scope.name, of.key, row.mark.outcome if status == "succeeded" else None)
        await of.attempt.journal.append(item, also=Also(progress=True, marks=left))

    async def _waiting(self, row: KeyRow) -> Parked | None:
        """How to wait for its next change; None where it has changed already."""
        kit, run, mark = self._of.attempt.kit, self._of.attempt.journal.row, row.mark

        async def ask() -> bool:
            return await kit.store.await_key(
                run.tenant, mark.key, run.id, changes=row.changes, now=kit.clock.now()
            )  # fmt: skip

        if run.id not in row.waiters and not await self._of.attempt.patiently(ask, "its business key"):
            return None
        if mark.status == "unknown":
            detail = f"business key {mark.shown}: in doubt in run {mark.run}, operation {mark.operation}"
            return Parked("a person decides", block="in doubt elsewhere", detail=detail)
        why = f"business key {mark.shown}: operation {mark.operation} of run {mark.run}"
        return Parked(writable(why), message=True)

    async def _read(self, take: KeyMark) -> KeyRow | None:
        attempt = self._of.attempt
        store, tenant = attempt.kit.store, attempt.journal.row.tenant
        return await attempt.patiently(lambda: store.business_key(tenant, take.key), "its business key")


_STATUSES: dict[str, kinds.Settled] = {
    "succeeded": "succeeded", "raised": "raised", "abandoned": "abandoned", "compensated": "compensated",
    "conflict": "conflict",
}  # fmt: skip


def acting(effect: Effect) -> kinds.Acting:
    """What is declared harmless now, and was not when it was recorded, is done with the caution that it had."""
    return "external" if effect == "read" else effect
