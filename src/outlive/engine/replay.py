"""Ordered replay of one scope: the next unconsumed call must be the one that is asked for, or the code has diverged."""

from __future__ import annotations

import json
from collections import Counter, deque
from itertools import islice
from urllib.parse import quote

from outlive.log.fold import Call, CallKind, ScopeLog, key_before
from outlive.model.errors import Diverged

_SHOWN = 120
_READABLE = 2000


class Cursor:
    """The calls of a scope that are in the log and not yet asked for again, in order; those before `skip` have been."""

    def __init__(self, scope: str, recorded: ScopeLog, *, skip: int = 0) -> None:
        self.scope = scope
        self.cancelled = recorded.cancelled
        self._recorded, self._met, self._last = recorded, skip, ""
        self._left = deque(recorded.calls[skip:])
        self._counts: Counter[str] = Counter()

    @property
    def cancelling(self) -> bool:
        """Whether the run was cancelled and all that is recorded of this scope before that has been asked for."""
        after = self._recorded.told_after
        return after is not None and all(map(_skippable, islice(self._left, max(0, after - self._met))))

    @property
    def exhausted(self) -> bool:
        """Whether all that has to be asked for is consumed: from here on calls are live."""
        return not self._left or (_skippable(self._left[0]) and all(map(_skippable, self._left)))

    def next(
        self, kind: CallKind, name: str, digest: str, shown: str, line: str, former: frozenset[str] = frozenset()
    ) -> tuple[str, Call | None]:
        """The key of the call that is asked for, and what is recorded of it (None: it is live). Raises Diverged.

        A call that was recorded under one of the `former` names keeps that name's key, and so what is known of it. Of
        what a person has adopted, a step that may be skipped is passed over, and one that was let in is live.
        """
        while self._left:
            head = self._left[0]
            if head.kind == kind and _is(head, name, digest, former):
                self._pass()
                return head.key, head
            if kind == "step" and head.adopted is not None and (name, digest) in head.adopted.let_in:
                key = key_before(self.key_of(name), head.seq)
                self._counts[name] += 1
                self._met, self._last = self._met + 1, name
                return key, None
            if not _skippable(head):
                raise Diverged(
                    has=head.shown or head.name, asks=shown, line=line, seq=head.seq,
                    call=(self.scope, kind, name, digest),
                )  # fmt: skip
            self._pass()
        key = self.key_of(name)
        self._counts[name] += 1
        self._met, self._last = self._met + 1, name
        return key, None

    def _pass(self) -> None:
        self._counts[self._left.popleft().name] += 1
        self._met += 1

    def key_of(self, name: str) -> str:
        """The key of the next call of that name, among those that are known by it in this scope."""
        return f"{self.scope}/{name}/{self._counts[name]}"

    def known_as(self, name: str, old: str) -> str:
        """The call that was just let through as live turns out to be known under an old name: the key of that."""
        self._counts[name] -= 1
        key = self.key_of(old)
        self._counts[old] += 1
        self._last = old
        return key

    @property
    def head(self) -> Call | None:
        """The recorded call that has to be asked for next."""
        return self._left[0] if self._left else None

    def give_back(self) -> None:
        """The call that was asked for last has left nothing in the log, and replay will not ask for it."""
        self._counts[self._last] -= 1
        self._met -= 1

    def leave(self, asks: str, line: str = "") -> None:
        """The scope ends here: raises Diverged if the log has more in it."""
        head = next((call for call in self._left if not _skippable(call)), None)
        if head is not None:
            raise Diverged(
                has=head.shown or head.name, asks=asks, line=line, seq=head.seq, call=(self.scope, "", "", "")
            )  # fmt: skip


def _skippable(call: Call) -> bool:
    return call.adopted is not None and call.adopted.skippable


def _is(call: Call, name: str, digest: str, former: frozenset[str]) -> bool:
    """Whether a recorded call is the one that is asked for; how often it was before follows from their order."""
    if call.adopted is not None and (name, digest) in call.adopted.takers:
        return True
    return call.digest == digest and (call.name == name or call.name in former)


def branch_scope(call_key: str, branch: str) -> str:
    """The scope of a branch: its key is quoted, so that no key of a user's can look like a path."""
    return f"{call_key}:{quote(branch, safe='')}"


def show(name: str, arguments: str) -> str:
    """A call as people read it, short, from its arguments as a JSON object: `charge(invoice="INV-7", cents=4200)`."""
    given: object = json.loads(arguments) if len(arguments) <= _READABLE else {"…": len(arguments)}
    parts = [f"{key}={_write(value)}" for key, value in given.items()] if isinstance(given, dict) else [_write(given)]
    text = f"{name}({', '.join(parts)})"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


_write = json.JSONEncoder(ensure_ascii=False).encode
