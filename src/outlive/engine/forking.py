"""Forks: a new run that begins with what another one has behind it, and goes on for itself. At entry 0: a restart.

A fork begins where nothing of its history is open: each operation before that point has its outcome, so that the fork
never settles, repeats or compensates one that is its parent's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from outlive.engine.cancelling import WITH_RUN
from outlive.engine.failures import writable
from outlive.log import kinds
from outlive.log.entry import Entry, verify
from outlive.log.fold import Call, Fold, step
from outlive.model.clock import Clock
from outlive.model.errors import BadArguments, NotForkable, RunExists, UnknownRun, WrongState
from outlive.model.ids import LONGEST_WORDS, RunId, Tenant, unnamed
from outlive.model.operation import OPEN
from outlive.model.run import Head, History, NewRun, RunRow, refusal_to_fork
from outlive.store.port import Store

_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A fork that is asked for: behind entry `at` (None: the last that is possible), by `who`.

    Without an `id` it gets a new one; with one, the same wish twice is the same fork. With `repeat_effects` it does
    again, without asking, what its parent has done behind that entry.
    """

    at: int | None = None
    who: str
    why: str = ""
    id: str | None = None
    repeat_effects: bool = False


async def fork(store: Store, clock: Clock, tenant: Tenant, run: RunId, wish: Wish) -> RunRow:
    """Fork a run: the row of the fork, which is ready.

    Raises UnknownRun, WrongState for a run that has neither ended nor is paused, NotForkable for an entry behind which
    no fork can begin, RunExists for an id that another run or fork has, BadArguments, ChainBroken.
    """
    id = RunId(wish.id if wish.id is not None else f"{run[:160]}-fork-{clock.token()[:8]}")
    for what, name in (("id", id), ("who", wish.who)):
        if why := unnamed(f"the {what} {name!r}", name):
            raise BadArguments(function="fork", why=why)
    if len(wish.why) > LONGEST_WORDS:
        raise BadArguments(function="fork", why=f"the why has {len(wish.why)} characters, at most {LONGEST_WORDS}")
    row = await store.run(tenant, run)
    if (refusal := refusal_to_fork(run, row)) is not None:
        raise refusal
    if row is None:
        raise UnknownRun(run=run)
    if back := [one.id for one in await store.rollbacks(tenant, run) if not one.ended]:
        wanted = f"run {back[0]} is rolling it back; wait until that has ended"
        raise WrongState(run=run, status=row.status, wanted=wanted)
    history = await _history(store, row, wish, await _undone(store, row))
    at = history.end.seq - 1
    new = NewRun(
        tenant, id, row.agent, row.version, "", row.input_digest, row.queue, row.priority, None, wish.who, row.purpose,
        row.identity, row.labels, row.pin is not None,
    )  # fmt: skip
    fact = kinds.Forked(
        parent=run, at=at, head=history.end.digest.hex(), who=wish.who, why=writable(wish.why),
        repeat_effects=wish.repeat_effects,
    )  # fmt: skip
    now = clock.now() if clock.now() is not None else await store.now()
    made = await store.fork(new, history, kinds.draft(fact, at=now or 0), now=clock.now())
    if (made.fork_of, made.fork_seq, made.repeat_effects) != (run, at, wish.repeat_effects):
        raise RunExists(run=id, differs=f"history ({_of(made)})")
    return made


def _of(row: RunRow) -> str:
    if row.fork_of is None:
        return "it is no fork"
    repeats = ", with repeated effects" if row.repeat_effects else ""
    return f"it is a fork of {row.fork_of} at entry {row.fork_seq}{repeats}"


async def _undone(store: Store, row: RunRow) -> dict[str, str]:
    """The operations in a run's log, also from its own history, that are compensated, each with what has done that."""
    found: dict[str, str] = {}
    at: RunRow | None = row
    while at is not None:
        rows = await store.operations(at.tenant, at.id)
        found |= {one.id: one.compensated_by for one in rows if one.status == "compensated"}
        at = await store.run(at.tenant, at.fork_of) if at.fork_of is not None else None
    return found


async def _history(store: Store, row: RunRow, wish: Wish, undone: Mapping[str, str]) -> History:
    cuts = Cuts(undone)
    if wish.at is not None and not 0 <= wish.at < row.head.seq:
        nearest = (await _history(store, row, Wish(who=wish.who), undone)).end.seq - 1 if wish.at > 0 else 0
        why = f"its log has the entries 0 to {row.head.seq - 1}"
        raise NotForkable(run=row.id, at=wish.at, why=why, nearest=nearest)
    async for entry in _entries(store, row):
        if wish.at is not None and entry.seq > wish.at:
            cuts.behind(entry)
            break
        cuts.take(entry)
    cuts.end()
    last = cuts.last
    assert last is not None, "the start of a run is always a point"
    if wish.at is not None and last.end.seq - 1 != wish.at:
        raise NotForkable(run=row.id, at=wish.at, why=cuts.why[wish.at], nearest=last.end.seq - 1)
    return History(
        row.id, row.origin, last.end, last.epoch, last.prologue_seq, last.window_seq, wish.repeat_effects
    )  # fmt: skip


async def _entries(store: Store, row: RunRow) -> AsyncIterator[Entry]:
    """The log as it was written: raises ChainBroken."""
    secret, head = await store.key(row.tenant), Head(0, b"")
    while page := await store.entries(row.tenant, row.id, after=head.seq - 1, limit=_PAGE):
        head = verify(secret, row.id, page, head.digest)
        for entry in page:
            yield entry


@dataclass(frozen=True, slots=True)
class Cut:
    """A point behind which a fork can begin, and what the entries up to it make of a run's row."""

    end: Head
    epoch: int
    prologue_seq: int | None
    window_seq: int | None


@dataclass(slots=True)
class Cuts:
    """Reads a log from its beginning and knows the last point behind which a fork can begin. Pure.

    `undone` are the operations that were compensated: no fork takes one of them for done.
    """

    undone: Mapping[str, str] = field(default_factory=dict)
    last: Cut | None = None
    why: dict[int, str] = field(default_factory=dict)
    """Of the last two entries, if no fork can begin behind them: why not."""
    _fold: Fold = field(default_factory=Fold)
    _cut: Cut | None = None
    _turns: tuple[int, int] | None = None
    _before: kinds.Fact | None = None
    _spoilt: str = ""

    def behind(self, entry: Entry) -> None:
        """What is behind the last one: with that it is known whether a fork can begin there."""
        before = entry.seq - 1
        self.why = {seq: why for seq, why in self.why.items() if seq == before}
        if self._cut is not None and _belongs(kinds.read(entry), self._before):
            self.why[before] = f"entry {entry.seq} ({entry.kind}) was written together with it, and belongs to it"
            self._cut = None
        self.end()

    def take(self, entry: Entry) -> None:
        """The next entry. Raises UndecodableEntry."""
        self.behind(entry)
        fact = self._before = kinds.read(entry)
        step(self._fold, entry.seq, fact, entry.scope, entry.key, entry.payload)
        if isinstance(fact, kinds.Turn):
            self._turns = (self._turns[0] if self._turns else entry.seq, entry.seq)
        operation = str(getattr(fact, "operation", ""))
        if not self._spoilt and operation in self.undone:
            self._spoilt = f"operation {operation} has been undone there, by {self.undone[operation]}"
        if why := self._spoilt or obstacle(self._fold):
            self.why[entry.seq] = why
        else:
            first, last = self._turns or (None, None)
            self._cut = Cut(Head(entry.seq + 1, entry.digest), entry.epoch, first, last)

    def end(self) -> None:
        """No further entry belongs to the last one."""
        self.last, self._cut = self._cut or self.last, None


def obstacle(fold: Fold) -> str:
    """Why a fork cannot begin where a log has come to, or nothing."""
    if fold.ended is not None:
        return "the run has ended there"
    root = fold.current.get("")
    if fold.cancelling is not None or (root is not None and root.cancelled is not None):
        return "the run is being cancelled there"
    if any(call.kind == "rollback" for call in fold.keys.values()):
        return "the run has asked there for its rollback"
    if fold.duplicate or fold.lost or fold.orphans:
        return "a person has to decide there: entries were lost, or an operation has acted twice"
    for call in fold.operations.values():
        if call.sent is not None and not call.done and not _given_up(fold, call):
            return f"operation {call.sent.id} {call.shown} has no outcome there, it is {call.sent.status}"
    return ""


def _given_up(fold: Fold, call: Call) -> bool:
    """Whether it is known not to have acted and will never be sent: its branch was cancelled."""
    cancelled = any(call.scope in scopes and scopes[call.scope].cancelled is not None for scopes in fold.windows)
    return cancelled and call.sent is not None and call.sent.status not in OPEN


def _belongs(fact: kinds.Fact, before: kinds.Fact | None) -> bool:
    """Whether an entry is never written but together with the one before it.

    Of the entries of a run's cancellation those of its scopes come first.
    """
    begun = isinstance(before, kinds.ScopeCancelled) and before.why == WITH_RUN
    if isinstance(fact, kinds.ScopeCancelled):
        return begun or fact.why != WITH_RUN
    return (isinstance(fact, kinds.Cancelling) and begun) or (
        isinstance(fact, kinds.Arrived) and fact.again is not None
    )
