"""A few verbs for code that is not asynchronous: scripts, views of a synchronous framework. Agents have none of this.

Each call is the asynchronous one of the same signature, done on an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from copy import copy
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, TypeVar

from outlive.app import client, stop
from outlive.app.following import Event
from outlive.app.outlive import Outlive
from outlive.engine.definition import Agent
from outlive.engine.undoing import Undone
from outlive.model.errors import Refused
from outlive.model.operation import DidNotHappen, Happened

I = TypeVar("I")  # noqa: E741 - as the public surface names it
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Client:
    """An application's store, opened at the first call, for any thread of this process.

    It has nothing to do with the application's own `async with`: both can be open. Not for use inside an event loop,
    nor across a fork: both are Refused.
    """

    def __init__(self, app: Outlive[Any]) -> None:
        self._app = copy(app)
        self._app._store = self._app._worker = None
        self._lock = threading.Lock()
        self._serving: _Serving | None = None

    def start(
        self, agent: Agent[I, R], input: I, /, *, id: str | None = None, queue: str = "default", priority: int = 0,
        deadline: timedelta | None = None, tenant: str = "default", principal: str = "", purpose: str = "",
        identity: str | None = None, labels: dict[str, str] | None = None, connection: object = None,
    ) -> Handle[R]:  # fmt: skip
        """As `Outlive.start`. A `connection` of sqlite3 has to be one that another thread may use."""
        started = self._app.start(
            agent, input, id=id, queue=queue, priority=priority, deadline=deadline, tenant=tenant, principal=principal,
            purpose=purpose, identity=identity, labels=labels, connection=connection,
        )  # fmt: skip
        return Handle(self, self.do(started))

    def handle(self, agent: Agent[I, R], id: str, /, *, tenant: str = "default") -> Handle[R]:
        """As `Outlive.handle`."""
        return Handle(self, self._app.handle(agent, id, tenant=tenant))

    def complete(
        self, operation_id: str, outcome: Happened[Any] | DidNotHappen, /, *, key: str, attempt: int | None = None,
        tenant: str = "default",
    ) -> None:  # fmt: skip
        """As `Outlive.complete`."""
        self.do(self._app.complete(operation_id, outcome, key=key, attempt=attempt, tenant=tenant))

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Do it on the loop and wait for it; an interrupted wait cancels it. Raises Refused inside an event loop."""
        done: Future[R] = Future()
        begun = False
        try:
            # What is begun before `close` has its turn is seen through.
            with self._lock:
                serving = self._opened()
                begun = True
                serving.begin(work, done)
            return done.result()
        except BaseException:
            # An interrupt may come anywhere here: from where it may have begun, only the loop ends the work.
            if not begun:
                work.close()
            done.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        """Begin it on the loop; from any thread, and from inside an event loop too, whose caller awaits the future.

        A future that is cancelled cancels the work.
        """
        done: Future[R] = Future()
        try:
            with self._lock:
                self._opened(blocking=False).begin(work, done)
        except BaseException:
            work.close()
            raise
        return done

    @property
    def app(self) -> Outlive[Any]:
        """The application as it is open on the loop: for what is done there alone."""
        return self._app

    def close(self) -> None:
        """Let calls in flight end, close the store and end the thread. The next call opens it again."""
        with self._lock:
            serving, self._serving = self._serving, None
        if serving is not None and serving.pid == os.getpid():
            serving.end()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self, *, blocking: bool = True) -> _Serving:
        if blocking and asyncio._get_running_loop() is not None:
            raise Refused(what="a blocking call inside an event loop", why="await the same of Outlive and its Handle")
        if self._serving is None:
            self._serving = _Serving(self._app)
        if self._serving.pid != os.getpid():
            why = f"process {self._serving.pid} has opened this client; make one in each process"
            raise Refused(what="a call after a fork", why=why)
        return self._serving


class Handle(Generic[R_co]):
    """A run, as the world outside sees it: `outlive.Handle` without waiting on an event loop."""

    def __init__(self, client: Client, handle: client.Handle[R_co]) -> None:
        self.id: str = handle.id
        self._client, self._handle = client, handle

    def status(self) -> str:
        """As `outlive.Handle.status`."""
        return self._client.do(self._handle.status())

    def result(self, *, timeout: timedelta | None = None) -> R_co:
        """As `outlive.Handle.result`."""
        return self._client.do(self._handle.result(timeout=timeout))

    def events(self, *, after: str | None = None, deltas: bool = False) -> Generator[Event]:
        """As `outlive.Handle.events`."""
        events = self._handle.events(after=after, deltas=deltas)

        def follow() -> Generator[Event]:
            try:
                while (event := self._client.do(_next(events))) is not None:
                    yield event
            finally:
                self._client.do(_end(events))

        return follow()

    def send(self, topic: str, message: object, *, key: str) -> None:
        """As `outlive.Handle.send`."""
        self._client.do(self._handle.send(topic, message, key=key))

    def cancel(
        self, *, who: str, why: str = "", grace: timedelta = stop.GRACE, wait: timedelta = stop.AT_ONCE
    ) -> stop.Cancelled:
        """As `outlive.Handle.cancel`."""
        return self._client.do(self._handle.cancel(who=who, why=why, grace=grace, wait=wait))

    def terminate(self, *, who: str, why: str = "") -> None:
        """As `outlive.Handle.terminate`."""
        self._client.do(self._handle.terminate(who=who, why=why))

    def pause(self, *, who: str, why: str = "", wait: timedelta = stop.AT_ONCE) -> stop.Paused:
        """As `outlive.Handle.pause`."""
        return self._client.do(self._handle.pause(who=who, why=why, wait=wait))

    def resume(self, *, who: str, why: str = "") -> None:
        """As `outlive.Handle.resume`."""
        self._client.do(self._handle.resume(who=who, why=why))

    def rollback(self, *, who: str, why: str) -> Handle[Undone]:
        """As `outlive.Handle.rollback`."""
        return Handle(self._client, self._client.do(self._handle.rollback(who=who, why=why)))


async def _next(events: AsyncGenerator[Event]) -> Event | None:
    return await anext(events, None)


async def _end(events: AsyncGenerator[Event]) -> None:
    await events.aclose()


class _Serving:
    """A thread with an event loop on which the store is open, from here until `end`. Raises what opening it raises."""

    def __init__(self, app: Outlive[Any]) -> None:
        self.pid = os.getpid()
        opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.TaskGroup, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(_serve(app, opened)), name="outlive-sync", daemon=True
        )
        self._thread.start()
        self._loop, self._group, self._stop = opened.result()

    def begin(self, work: Coroutine[Any, Any, R], done: Future[R]) -> None:
        """Do it on the loop, unless `done` is cancelled before; from then on that cancels it."""

        def begin() -> None:
            if done.cancelled():
                work.close()
                return
            task = self._group.create_task(_settle(work, done))
            done.add_done_callback(lambda _: done.cancelled() and self._loop.call_soon_threadsafe(task.cancel))

        self._loop.call_soon_threadsafe(begin)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


async def _serve(
    app: Outlive[Any], opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.TaskGroup, asyncio.Event]]
) -> None:
    try:
        await app.open()
    except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
        opened.set_exception(error)
        return
    try:
        async with asyncio.TaskGroup() as group:
            stop = asyncio.Event()
            opened.set_result((asyncio.get_running_loop(), group, stop))
            await stop.wait()
    finally:
        await app.close()


async def _settle(work: Coroutine[Any, Any, R], done: Future[R]) -> None:
    """What came of it is its caller's, in another thread, who may have stopped waiting; the group sees no failure."""
    try:
        result = await work
    except BaseException as error:  # noqa: BLE001 - its caller is told
        with suppress(InvalidStateError):
            done.set_exception(error)
    else:
        with suppress(InvalidStateError):
            done.set_result(result)
