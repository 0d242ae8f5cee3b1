"""`run.turns`: the loop of a long run. The state commits at the end of each turn, whose calls then leave the window.

A turn may end only when every recorded call of its window has been asked for and no branch is open. The loop belongs
to the root scope; a run has one.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel

from outlive.engine.attempt import Attempt
from outlive.engine.callables import caller_line
from outlive.engine.failures import clean
from outlive.engine.journal import Item
from outlive.engine.replay import Cursor
from outlive.engine.rules import Wanted, state_by_rule
from outlive.engine.scope import Parked, Scope, Stop
from outlive.log import kinds
from outlive.log.canonical import canonical
from outlive.log.codec import Codec, codec_of
from outlive.log.fold import Call, lost_operation
from outlive.model.errors import Diverged, Refused, ScopeOpen, UndecodableEntry

S = TypeVar("S", bound=BaseModel)


class Turns(Generic[S]):
    """An async iterator of states. Change the state in place (`state.done.append(…)`): what it holds at the end of the
    loop's body is what the next turn begins with, on any worker.
    """

    def __init__(self, attempt: Attempt, initial: S) -> None:
        self._attempt, self._initial = attempt, initial
        self._codec: Codec[object] = codec_of(type(initial))
        self._digest = attempt.digest(canonical(initial))
        self._shown = f"turns({type(initial).__name__})"
        self._state: S | None = None
        self._number = 0

    @property
    def number(self) -> int:
        """How many turns have been committed."""
        return self._number

    def __aiter__(self) -> Turns[S]:
        return self

    async def __anext__(self) -> S:
        line = caller_line()
        with self._attempt.entering(self._shown, line) as scope:
            if scope.name:
                raise ScopeOpen(scope=scope.name)
            call = await self._begin(scope, line) if self._state is None else await self._commit(scope, line)
            self._number = call.number
            self._state = self._decode(call)
            return self._state

    async def _begin(self, scope: Scope, line: str) -> Call:
        attempt = self._attempt
        if attempt.turning:
            raise Refused(what=f"a second {self._shown}", why="a run has one loop of turns; put both into one state")
        scope.cursor.leave(self._shown, line)
        if len(attempt.fold.windows) > 1:
            call = await self._adopted(scope, attempt.fold.current[scope.name].calls[0], line)
            if (call.name, call.digest) != (self._shown, self._digest):
                raise Diverged(
                    has=call.shown, asks=self._shown + " with another initial state", line=line, seq=call.seq
                )
        else:
            call = await self._record(scope, 0, self._initial)
        attempt.turning = True
        self._enter(scope)
        return call

    async def _adopted(self, scope: Scope, call: Call, line: str) -> Call:
        """The recorded turn, with the state that a rule of this version makes of it, if one does: committed once."""
        kit, agent = self._attempt.kit, self._attempt.agent
        wanted = Wanted(self._shown, self._digest, self._codec, type(self._initial), line)
        item = state_by_rule(agent.name, agent.version, agent.adopts, call, wanted, kit.scrubber)
        if item is None:
            return call
        await self._attempt.adopt(scope, item)
        return self._attempt.fold.current[scope.name].calls[0]

    async def _commit(self, scope: Scope, line: str) -> Call:
        scope.cursor.leave("the end of the turn", line)
        while unknown := self._attempt.fold.in_doubt():
            listed = ", ".join(f"{call.sent.id} {call.shown}" for call in unknown if call.sent)
            detail = f"the turn has ended, but it is not known whether these happened: {listed}"
            await self._attempt.park(
                scope, Parked("a person decides", block="operation in doubt", detail=detail, cancellable=False)
            )
        assert self._state is not None
        call = await self._record(scope, self._number + 1, self._state)
        self._enter(scope)
        return call

    async def _record(self, scope: Scope, number: int, state: S) -> Call:
        await self._attempt.gate(scope)
        if self._attempt.fold.cancelling is not None:
            # The next window would not know of it: a loop that goes on after it was cancelled ends here.
            self._attempt.halt(Stop("over"))
            await self._attempt.gate(scope)
        scope.key = f"/turns//{number}"
        where = f"the state of {self._shown}"
        text = clean(self._attempt.kit.scrubber, self._codec, self._codec.encode(state, where=where), where)
        lost = [lost_operation(orphan) for orphan in self._attempt.fold.orphans.values()]
        version, left = self._versions()
        fact = kinds.Turn(
            name=self._shown, digest=self._digest, shown=self._shown, number=number, lost=lost, version=version,
            left=left,
        )  # fmt: skip
        scope.executing = True
        await self._attempt.journal.append(Item(fact, scope.name, scope.key, text))
        scope.executing = False
        await self._attempt.recorded(scope)
        return self._attempt.fold.current[scope.name].calls[0]

    def _versions(self) -> tuple[str, list[str]]:
        """What the entry of a turn says of versions: whose state it is, and which have had another one before."""
        fold, own = self._attempt.fold, self._attempt.agent.version
        left = [one for one in fold.current[""].calls[0].left if one != own] if len(fold.windows) > 1 else []
        return "" if fold.started is None or fold.started.version == own else own, left

    def _enter(self, scope: Scope) -> None:
        """From here on calls are matched with those recorded after the turn's own entry."""
        recorded = self._attempt.fold.current[scope.name]
        scope.cursor = Cursor(scope.name, recorded, skip=1)

    def _decode(self, call: Call) -> S:
        try:
            state = self._codec.decode(call.payload or "null", where=f"the state of turn {call.number}")
        except UndecodableEntry as error:
            raise Diverged(
                has=f"a state of {self._shown}", asks=f"another: {error.why}", line="", seq=call.seq
            ) from error
        assert isinstance(state, type(self._initial))
        return state
