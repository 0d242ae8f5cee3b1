"""User functions: which can be durable, what they are called, and the one place that decides how they run.

A plain `def` runs on a thread so that it cannot stop the event loop. A thread cannot be stopped: a call in it is over
only when the thread has ended, whatever time-out was set.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
import sys
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import TypeVar, cast

from outlive.model.errors import Refused
from outlive.model.function import UserFunction

T = TypeVar("T")
_LONGEST_NAME = 200

_pool = ThreadPoolExecutor(max_workers=64, thread_name_prefix="outlive-call")


def describe(fn: UserFunction) -> str:
    """Where a function is, for errors: module, name and line."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    name = f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', type(fn).__name__)}"
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})" if code else name


def placeholder(frame: FrameType) -> UserFunction:
    """A function that stands where that code is: its file is what the build follows, its line is told."""

    def registered() -> None:
        """Never called."""

    code = registered.__code__.replace(co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno)
    there = FunctionType(code, {}, frame.f_code.co_name)
    there.__module__ = str(frame.f_globals.get("__name__", "?"))
    return there


def refuse_unnameable(fn: UserFunction) -> None:
    """Raise Refused for what has no stable name of its own: the log could not find it again."""
    if isinstance(fn, functools.partial):
        raise Refused(what=f"partial({describe(fn.func)})", why="its arguments are hidden; pass them with the call")
    if inspect.ismethod(fn):
        raise Refused(what=describe(fn), why="a bound method carries state the log does not have; use a function")
    if not inspect.isfunction(fn):
        raise Refused(what=repr(fn), why="not a plain function")
    if fn.__name__ == "<lambda>":
        raise Refused(what=describe(fn), why="a lambda has no name; use def")
    if "<locals>" in fn.__qualname__:
        raise Refused(what=describe(fn), why="a nested function closes over state the log does not have; move it out")


def check_name(what: str, name: str) -> None:
    """Raise Refused for a name that could not stand in a key of the log."""
    if not name.isprintable() or "/" in name or not 0 < len(name) <= _LONGEST_NAME:
        why = f"a name is printable, without /, of 1 to {_LONGEST_NAME} characters"
        raise Refused(what=f"the {what} {name!r}", why=why)


def caller_line(depth: int = 1) -> str:
    """The line of user code that asked, as `file.py:41`."""
    frame: FrameType | None = sys._getframe(depth + 1)
    if frame is None:
        return "?"
    return f"{_file(frame.f_code.co_filename)}:{frame.f_lineno}"


_file = functools.lru_cache(maxsize=1024)(os.path.basename)


@functools.lru_cache(maxsize=1024)
def is_async(fn: UserFunction) -> bool:
    """Whether it is an `async def`, under whatever decorators."""
    return inspect.iscoroutinefunction(inspect.unwrap(fn))


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """What a call on a thread answered after it was cancelled: the argument of the CancelledError."""

    value: object
    error: BaseException | None


async def run_callable(fn: UserFunction, *args: object, **kwargs: object) -> object:
    """Call an `async def` here, a `def` on a thread.

    When the caller is cancelled, a thread is still waited for, and its answer comes with the cancellation.
    """
    if is_async(fn):
        return await cast(Awaitable[object], fn(*args, **kwargs))
    context = contextvars.copy_context()

    def on_thread() -> object:
        try:
            return context.run(fn, *args, **kwargs)
        except StopIteration as error:
            # A future cannot hold one: the call would never end.
            raise RuntimeError(f"{describe(fn)} raised StopIteration") from error

    future = asyncio.get_running_loop().run_in_executor(_pool, on_thread)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not future.cancelled():
            await until_done(future)
        if future.cancelled():
            raise
        error = future.exception()
        raise asyncio.CancelledError(LateAnswer(None if error else future.result(), error)) from None


async def until_done(future: asyncio.Future[T]) -> None:
    """Wait for a future to its end, however often the waiting task is cancelled meanwhile; its result is not read."""
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue
    if not future.cancelled():
        future.exception()
