"""Which text on its way a follower of a run may be shown, as the log says that he has read up to now.

Text is never shown before the entries that were there when it was made, nor after those that supersede it. So what is
shown is in one order with what is committed, whoever reads it and however late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.store.streaming import Delta

_STANDS = (
    kinds.Suspended.KIND, kinds.Blocked.KIND, kinds.Released.KIND, kinds.Paused.KIND, kinds.Ended.KIND,
)  # fmt: skip
# Calls that are remembered to be over. Text of one is taken away a moment later.
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which attempt at which call a delta belongs to. A call is attempt 1, 2, … and, in each epoch, begun anew."""

    call: str
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a run made known, at `cursor` of its log.

    `name` is the agent's own for what it emits, else `run.asked`, `run.blocked` or `run.ended`. With an `attempt` it is
    text on its way, and no fact: `name` is that of the step, the tool or the coming event, `cursor` that of the last
    entry before.
    """

    cursor: str
    name: str
    data: dict[str, object]
    attempt: Attempt | None = None


class Following:
    """Belongs to one follower, who has seen the log up to entry `seq`."""

    def __init__(self, seq: int) -> None:
        self.position = 0
        self._from = self._seq = seq + 1
        # The entry that was the last to supersede: a call, all that is below one, all.
        self._ended: dict[str, int] = {}
        self._joined: dict[str, int] = {}
        self._stood = -1
        self._shown: dict[str, Delta] = {}

    def lacks(self, deltas: Sequence[Delta]) -> tuple[int, int]:
        """The entries, from one to before another, that have to be known to judge these."""
        return min((one.after_seq for one in deltas), default=self._from), self._from

    def learn(self, entries: Sequence[Entry], first: int) -> None:
        """All entries from `first` on, before those that are known."""
        for entry in entries:
            self._note(entry)
        self._from = first

    def passed(self, entry: Entry, cursor: str) -> list[Event]:
        """The next entry: what was shown and is over by it."""
        self._note(entry)
        self._seq = entry.seq + 1
        over = [one for one in self._shown.values() if self._is_over(one)]
        for one in over:
            del self._shown[one.call]
        return [_event(one, cursor, over=True) for one in over]

    def show(self, deltas: Sequence[Delta], cursor: str) -> list[Event]:
        """Those that may be shown now; `position` is behind the last that was judged."""
        events: list[Event] = []
        for one in deltas:
            if one.after_seq > self._seq:
                break
            self.position = one.position
            if not self._is_over(one):
                self._shown[one.call] = one
                events.append(_event(one, cursor, over=False))
        return events

    def _note(self, entry: Entry) -> None:
        if entry.kind in _STANDS or (entry.kind == kinds.ClaimedBy.KIND and not _again(entry)):
            self._stood = max(self._stood, entry.seq)
        elif entry.key:
            known = self._joined if entry.kind == kinds.Joined.KIND else self._ended
            known[entry.key] = max(known.get(entry.key, -1), entry.seq)
            if len(known) > _MOST:
                del known[next(iter(known))]

    def _is_over(self, delta: Delta) -> bool:
        above = (delta.call[:at] for at, sign in enumerate(delta.call) if sign == ":")
        last = max(self._stood, self._ended.get(delta.call, -1), *(self._joined.get(one, -1) for one in above))
        return last >= delta.after_seq


def _event(delta: Delta, cursor: str, *, over: bool) -> Event:
    place = delta.place + len(delta.text) if over else delta.place
    data: dict[str, object] = {"text": "" if over else delta.text, "place": place, "over": over}
    return Event(cursor, delta.name, data, Attempt(delta.call, delta.epoch, delta.attempt))


def _again(entry: Entry) -> bool:
    """Whether its worker has claimed it again from itself: what it was doing it is still doing."""
    fact = kinds.read(entry)
    return isinstance(fact, kinds.ClaimedBy) and fact.why == "again"
