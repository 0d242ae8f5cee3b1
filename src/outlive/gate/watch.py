"""Finds what code does to the world while a log is rehearsed, when it should do nothing.

An audit hook sees what goes through Python: files, processes, sockets. It refuses what would change something, and says
which line wanted it. What a C library does by itself is not seen here; `outlive.gate.alone` keeps it from the network.
"""

from __future__ import annotations

import _posixsubprocess
import asyncio
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from weakref import WeakSet

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_LIBRARY = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})
_PACKAGES = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib")})
# Standard library that reads source files of its own accord.
_READERS = tuple(
    f"{library}{name}.py"
    for library in _LIBRARY
    for name in ("linecache", "tokenize", "inspect", "zipimport", "pkgutil")
)
# In the code of which run it is; 0: of none.
_rehearsal: ContextVar[int] = ContextVar("outlive_gate_rehearsal", default=0)
# Threads of pools work for one run after the other.
_POOLS = ("asyncio_", "ThreadPoolExecutor", "AnyIO worker")

# What changes something, with what is said of it.
_DEEDS: dict[str, str] = {
    "os.remove": "removes {0}", "os.rename": "renames {0}", "os.rmdir": "removes {0}", "os.mkdir": "makes {0}",
    "os.link": "links {0}", "os.symlink": "links {0}", "os.truncate": "truncates {0}", "os.chmod": "changes {0}",
    "os.chown": "changes {0}", "os.utime": "changes {0}", "tempfile.mkstemp": "makes a file {0}",
    "tempfile.mkdtemp": "makes a directory {0}", "shutil.rmtree": "removes {0}", "shutil.move": "moves {0}",
    "shutil.copyfile": "copies {0}", "subprocess.Popen": "starts the process {0}", "os.system": "runs {0}",
    "os.exec": "executes {0}", "os.posix_spawn": "starts the process {0}", "os.spawn": "starts the process {1}",
    "os.fork": "forks", "os.forkpty": "forks", "os.kill": "sends a signal to {0}",
    "os.killpg": "sends a signal to the group {0}",
    "signal.pthread_kill": "sends a signal to a thread", "os.setxattr": "changes {0}", "os.removexattr": "changes {0}",
    "syslog.syslog": "writes to the system log", "pty.spawn": "starts {0}",
    "socket.connect": "connects to {1}", "socket.sendto": "sends to {1}", "socket.sendmsg": "sends to {1}",
    "socket.bind": "binds {1}", "socket.getaddrinfo": "looks {0} up", "socket.gethostbyname": "looks {0} up",
    "socket.gethostbyaddr": "looks {0} up", "sqlite3.connect": "opens the database {0}",
    "outlive.fork_exec": "starts the process {0}", "outlive.mkfifo": "makes {0}", "outlive.mknod": "makes {0}",
}  # fmt: skip
# Python itself does not say so of these (multiprocessing starts processes by the first).
_UNTOLD = ((_posixsubprocess, "fork_exec"), (os, "mkfifo"), (os, "mknod"))
_LOOKED_AT = frozenset(("open", *_DEEDS))


class Acted(BaseException):
    """Raised in the place of what code wanted to do. Not an Exception: no `except Exception` goes on after it."""


@dataclass(frozen=True, slots=True)
class Deed:
    """What was about to be done, and the line of user code that wanted it."""

    what: str
    line: str


class Watch:
    """The hook of this process. There is one: a hook cannot be taken away, so it only looks while it is asked to."""

    def __init__(self) -> None:
        self._active = False
        self._tell: Callable[[Deed], None] = lambda _: None
        self._notes: list[str] = []
        self._busy = threading.local()
        self._count, self._always = 0, False
        self._strays: WeakSet[threading.Thread] = WeakSet()
        for module, name in _UNTOLD:
            if hasattr(module, name):
                setattr(module, name, _told_of(name, getattr(module, name)))
        sys.addaudithook(self._hook)

    def stay(self) -> None:
        """Refuse from here on between rehearsals as well, until the process ends: what is left of one must not act."""
        self._always = True

    @contextmanager
    def over(self) -> Iterator[asyncio.Future[Deed]]:
        """Look while the block runs. The future has what was found first."""
        loop = asyncio.get_running_loop()
        first: asyncio.Future[Deed] = loop.create_future()

        def put(deed: Deed) -> None:
            if not first.done():
                first.set_result(deed)

        def tell(deed: Deed) -> None:
            loop.call_soon_threadsafe(put, deed)

        self._count += 1
        self._tell, self._active, self._notes = tell, True, []
        threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
        token = _rehearsal.set(self._count)
        try:
            yield first
        finally:
            _rehearsal.reset(token)
            self._note_what_is_left(set(threading.enumerate()) - threads, asyncio.all_tasks() - tasks)
            self._active = False

    def _note_what_is_left(self, threads: set[threading.Thread], tasks: set[asyncio.Task[object]]) -> None:
        """What outlives its run may do something when nobody looks at that run any more."""
        strays = {one for one in threads if not one.name.startswith(_POOLS)}
        self._strays.update(strays)
        left = [*sorted(f"the thread {one.name}" for one in strays), *("a task" for _ in list(tasks)[:1])]
        self._notes += [f"leaves {one} behind: what that does later is not seen here" for one in left]

    def take_notes(self) -> list[str]:
        """What was read that may be something else next time."""
        notes, self._notes = self._notes, []
        return notes

    def found(self, what: str) -> Acted:
        """The caller of the caller does what it should not; what the caller is to raise."""
        line, _ = _who(sys._getframe(2))
        self._blame(Deed(what, line))
        return Acted(what)

    def _blame(self, deed: Deed) -> None:
        """Tell of it, unless it comes from what an earlier run has left behind: no other run is to blame for that."""
        number = _rehearsal.get() or (-1 if threading.current_thread() in self._strays else self._count)
        if self._active and number == self._count:
            self._tell(deed)

    def _hook(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in _LOOKED_AT or not (self._active or self._always) or getattr(self._busy, "on", False):
            return
        self._busy.on = True
        try:
            deed = self._seen(event, arguments)
        finally:
            self._busy.on = False
        if deed is not None:
            self._blame(deed)
            raise Acted(f"{deed.what} at {deed.line}")

    def _seen(self, event: str, arguments: tuple[object, ...]) -> Deed | None:
        changes = event != "open" or _is_written(arguments)
        line, whose = _who(sys._getframe(3 if event.startswith("outlive.") else 2))
        if whose == "ours" or (not changes and whose != "theirs"):
            return None
        if event != "open":
            shown = [_short(one) for one in (*arguments, "", "")]
            return Deed(_DEEDS[event].format(*shown), line)
        path = _short(arguments[0])
        if changes:
            return Deed(f"writes {path}", line)
        self._notes.append(f"reads {path} at {line}, outside of steps: what it has then may be something else")
        return None


def _told_of(name: str, function: Callable[..., object]) -> Callable[..., object]:
    """The function, which says before that it is called."""

    @wraps(function)
    def telling(*args: object, **kwargs: object) -> object:
        sys.audit(f"outlive.{name}", *args, *kwargs.values())
        return function(*args, **kwargs)

    return telling


def _is_written(arguments: tuple[object, ...]) -> bool:
    path, flags = arguments[0], arguments[2]
    if isinstance(path, int) or path in (os.devnull, b"/dev/null"):
        return False
    if isinstance(path, str) and path.endswith((".pyc", ".pyo")):
        return False
    return isinstance(flags, int) and bool(flags & _WRITES)


def _who(frame: FrameType | None) -> tuple[str, str]:
    """The line that wanted it, and whether that is user code (`theirs`), a library (`library`) or `ours`.

    Looked at from the inside out; what is before the first line of user code or of ours is how it was done.
    """
    library = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith("<frozen importlib") or path in _READERS:
            return "", "ours"
        if path.startswith(_HERE):
            return (library, "library") if library else ("", "ours")
        if path.startswith(_PACKAGES):
            library = library or f"{os.path.basename(path)}:{frame.f_lineno}"
        elif not path.startswith(("<", *_LIBRARY)):
            return f"{os.path.basename(path)}:{frame.f_lineno}", "theirs"
        frame = frame.f_back
    return library, "library"


def blame(frame: FrameType | None) -> tuple[str, str]:
    """The library that is at work, if one is, and the innermost line of user code; empty for what there is not."""
    package = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGES):
            package = package or str(frame.f_globals.get("__name__", "")).partition(".")[0]
        elif not path.startswith(("<", _HERE, *_LIBRARY)):
            return package, f"{os.path.basename(path)}:{frame.f_lineno}"
        frame = frame.f_back
    return package, ""


def _short(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 100 else text[:99] + "…"


_watches: list[Watch] = []


def the_watch() -> Watch:
    """The one of this process."""
    if not _watches:
        _watches.append(Watch())
    return _watches[0]
