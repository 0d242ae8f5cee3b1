"""A process with a network namespace of its own: what a C library sends goes nowhere, and is counted.

Linux only, and only where the system lets a process have one: as root, or where user namespaces are allowed.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from outlive.gate.watch import Deed, blame

_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000
_COUNTERS = (("/proc/self/net/snmp", "Ip:", "OutNoRoutes"), ("/proc/self/net/snmp6", "Ip6OutNoRoutes", ""))


def leave_network() -> bool:
    """Move this process, which must have one thread, into an empty network. False where the system does not allow it.

    Without privileges a user namespace comes with it; in that the user has the same id as before.
    """
    if not sys.platform.startswith("linux"):
        return False
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(_NEW_NETWORK) == 0:
        return True
    user, group = os.getuid(), os.getgid()
    if unshare(_NEW_USER | _NEW_NETWORK) != 0:
        return False
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    return True


class Network:
    """The empty network of this process: how often something has tried to leave it."""

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self._last = self._tried()

    def tried(self) -> bool:
        """Whether something has tried since this was asked last. Always False in a network that is not empty."""
        before, self._last = self._last, self._tried()
        return self._last > before

    def _tried(self) -> int:
        return sum(_counted(*one) for one in _COUNTERS) if self._alone else 0

    @contextmanager
    def following(self) -> Iterator[list[Deed]]:
        """While the block runs, see after each call whether that was it. Slow: for what has tried before."""
        found: list[Deed] = []

        def look(frame: FrameType, event: str, called: object) -> None:
            # Not each call into C is told of; what follows next is in the same line of whoever wanted it.
            if self.tried():
                package, line = blame(frame)
                found.append(Deed(f"reaches for the network, in {package or 'code'} that does not go by Python", line))

        threading.setprofile(look)
        sys.setprofile(look)
        try:
            yield found
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _counted(path: str, row: str, column: str) -> int:
    """A counter of the kernel's: by row and column, or of a line by itself."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.split() for line in file if line.startswith(row)]
    except OSError:
        return 0
    if not column:
        return int(lines[0][1]) if lines else 0
    return int(lines[1][lines[0].index(column)]) if len(lines) > 1 and column in lines[0] else 0
