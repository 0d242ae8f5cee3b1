"""Ordered replay of one scope: the next unconsumed call must be the one that is asked for, or the code has diverged."""

from __future__ import annotations

import json
from collections import Counter, deque
from urllib.parse import quote

from outlive.log.fold import Call, CallKind, ScopeLog
from outlive.model.errors import Diverged

_SHOWN = 120
_READABLE = 2000


class Cursor:
    """The calls of a scope that are in the log and not yet asked for again, in order."""

    def __init__(self, scope: str, recorded: ScopeLog) -> None:
        self.scope = scope
        self.cancelled = recorded.cancelled
        self._left = deque(recorded.calls)
        self._counts: Counter[str] = Counter()

    @property
    def exhausted(self) -> bool:
        """Whether all that is recorded has been consumed: from here on calls are live."""
        return not self._left

    def next(self, kind: CallKind, name: str, digest: str, shown: str, line: str) -> tuple[str, Call | None]:
        """The key of the call that is asked for, and what is recorded of it (None: it is live). Raises Diverged."""
        key = f"{self.scope}/{name}/{self._counts[name]}"
        if self._left:
            head = self._left[0]
            if (head.kind, head.key, head.digest) != (kind, key, digest):
                raise Diverged(has=head.shown or head.name, asks=shown, line=line, seq=head.seq)
            self._left.popleft()
        else:
            head = None
        self._counts[name] += 1
        return key, head

    def leave(self, asks: str, line: str = "") -> None:
        """The scope ends here: raises Diverged if the log has more in it."""
        if self._left:
            head = self._left[0]
            raise Diverged(has=head.shown or head.name, asks=asks, line=line, seq=head.seq)


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
