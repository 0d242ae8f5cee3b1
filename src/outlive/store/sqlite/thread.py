"""Threads that own a connection, and requests that are handed to them from coroutines or other threads.

Every accepted request is answered exactly once, also when its caller has gone: cancelled, or with a closed loop.
The writer commits together what has gathered, renewals first; a request that fails takes no other with it.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeAlias, TypeVar

from outlive.model.errors import CommitUnknown, OutliveError, StoreBusy, StoreError, StoreFull, StoreUnavailable
from outlive.store.sqlite.connection import QUERIES, SETUP, translated
from outlive.store.sqlite.turnstile import Turnstile

T = TypeVar("T")

# What a request does with the connection. The number is the database's clock, read once for each commit.
Work = Callable[[sqlite3.Connection, int], T]

MOST_REQUESTS = 64

# A request and what its caller is to be told: the error, or None for its result.
Told: TypeAlias = "tuple[Request, BaseException | None]"


class Request(ABC):
    """Work for a connection's thread."""

    # Outside of any transaction, alone.
    bare = False
    # It is refused, with an error of ours, before it has written anything: then nothing is there to undo.
    decides_first = False

    @abstractmethod
    def perform(self, database: sqlite3.Connection, now: int) -> None:
        """Do the work and keep its result."""

    @abstractmethod
    def answer(self, error: BaseException | None) -> None:
        """Tell the caller: the error, or the result of the last `perform`."""

    def abandoned(self) -> bool:
        """Whether nobody waits any more; a request that has not begun is then left out."""
        return False


class Awaited(Request, Generic[T]):
    """A request that a coroutine awaits."""

    def __init__(
        self, work: Work[T], *, bare: bool = False, decides_first: bool = False, future: asyncio.Future[T] | None = None
    ) -> None:
        self._work, self.bare, self.decides_first = work, bare, decides_first
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = future or self.loop.create_future()
        self._result: list[T] = []

    def perform(self, database: sqlite3.Connection, now: int) -> None:
        self._result = [self._work(database, now)]

    def answer(self, error: BaseException | None) -> None:
        _tell([(self, error)])

    def abandoned(self) -> bool:
        return self.future.cancelled()

    def deliver(self, error: BaseException | None) -> None:
        """As `answer`, on the thread of the loop."""
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(self._result[0])


class Blocking(Request, Generic[T]):
    """A request that another thread waits for."""

    def __init__(self, work: Work[T]) -> None:
        self._work, self._done = work, threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def perform(self, database: sqlite3.Connection, now: int) -> None:
        self._result = [self._work(database, now)]

    def answer(self, error: BaseException | None) -> None:
        if not self._done.is_set():
            self._error = error
            self._done.set()

    def result(self) -> T:
        """Wait for the answer."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result[0]


class _Lane(ABC):
    """A queue of requests and the threads that serve it."""

    def __init__(self, *, store: str, name: str, threads: int) -> None:
        self._store = store
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._urgent: deque[Request] = deque()
        self._open, self._admission = True, threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, name=f"outlive-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, request: Request, *, urgent: bool = False) -> None:
        """Accept a request. Raises StoreUnavailable when the lane is closed."""
        with self._admission:
            if not self._open:
                raise StoreUnavailable(store=self._store, why="it is closed")
            if urgent:
                self._urgent.append(request)
                self._requests.put(_WAKE)
            else:
                self._requests.put(request)

    def close(self) -> None:
        """Accept nothing more; what was accepted is served. Does not wait."""
        with self._admission:
            if self._open:
                self._open = False
                for _ in self._threads:
                    self._requests.put(None)

    def join(self) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            thread.join()

    @abstractmethod
    def _run(self) -> None: ...


class Connections(_Lane):
    """A few connections of one kind, each with a thread. Requests run outside of any transaction."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], *, store: str, name: str = "reader", threads: int = 2
    ) -> None:
        self._connect = connect
        super().__init__(store=store, name=name, threads=threads)

    def _run(self) -> None:
        database: sqlite3.Connection | None = None
        while (request := self._requests.get()) is not None:
            if request.abandoned():
                continue
            try:
                database = database or self._connect()
                request.perform(database, 0)
            except sqlite3.Error as error:
                _close(database)
                database = None
                request.answer(translated(error, self._store))
            except Exception as error:  # noqa: BLE001 - whatever the work raises belongs to its caller
                request.answer(error)
            else:
                request.answer(None)
        _close(database)


class Writer(_Lane):
    """The one thread that writes: waits at the turnstile, then commits what has gathered meanwhile."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], turnstile: Turnstile, *, store: str) -> None:
        self._connect, self._turnstile = connect, turnstile
        self._database: sqlite3.Connection | None = None
        self._serving = False
        super().__init__(store=store, name="writer", threads=1)

    @property
    def idle(self) -> bool:
        """Whether nothing is being written or waits to be, as far as can be seen from another thread."""
        return not self._serving and self._requests.empty()

    def _run(self) -> None:
        waiting: Request | None = self._requests.get()
        while waiting is not None:
            self._serving = True
            waiting = self._alone(waiting) if waiting.bare else self._serve(waiting)
        self._refuse([*self._urgent], StoreUnavailable(store=self._store, why="it is closed"))
        self._drop()
        self._turnstile.close()

    def _alone(self, request: Request) -> Request | None:
        try:
            request.perform(self._connected(), 0)
        except sqlite3.Error as error:
            request.answer(self._failed(error))
        except Exception as error:  # noqa: BLE001 - whatever the work raises belongs to its caller
            request.answer(error)
        else:
            request.answer(None)
        return self._next()

    def _next(self) -> Request | None:
        self._serving = False
        return self._requests.get()

    def _serve(self, first: Request) -> Request | None:
        """Serve `first` and what has gathered by our turn. Returns the request that is next, None at the end."""
        batch: list[Request] = []
        following: list[Request | None] = []
        told: list[Told] = []
        try:
            try:
                with self._turnstile.held():
                    following = self._gather(first, batch)
                    if batch:
                        self._commit(self._connected(), batch, told)
            finally:
                # After the turn is let go: whoever acts on an answer may stop the process, and nobody could write then.
                _tell(told)
        except (StoreBusy, StoreUnavailable) as error:
            # All have waited for the same lock: none of them would get it sooner by waiting again.
            following = following or self._gather(first, batch)
            self._refuse(batch, error)
        except sqlite3.Error as error:
            self._refuse(batch, self._failed(error))
        except Exception as error:  # noqa: BLE001 - the thread must go on, and every request be answered
            self._refuse(batch or [first], error)
        return following[0] if following else self._next()

    def _gather(self, first: Request, batch: list[Request]) -> list[Request | None]:
        """Fill the batch from the queue, urgent ones first. Returns the request that does not fit in, if any."""
        gathered, following = [first], list[Request | None]()
        while len(gathered) < MOST_REQUESTS:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                break
            if request is None or request.bare:
                following.append(request)
                break
            gathered.append(request)
        while self._urgent:
            batch.append(self._urgent.popleft())
        batch += [request for request in gathered if not request.abandoned()]
        return following

    def _commit(self, database: sqlite3.Connection, batch: list[Request], told: list[Told]) -> None:
        try:
            database.execute(SETUP["begin"])
            now = int(database.execute(QUERIES["clock"]).fetchone()[0])
            outcomes = [(request, _attempt(database, request, now, shared=len(batch) > 1)) for request in batch]
        except (sqlite3.Error, _Spoiled) as error:
            self._undo(database)
            failure = self._failed(error) if isinstance(error, sqlite3.Error) else error.__cause__
            if len(batch) == 1:
                told.append((batch[0], failure))
                return
            # Whose fault it is cannot be seen from here (a full disk ends the whole transaction): each for itself.
            for request in batch:
                self._commit(self._connected(), [request], told)
            return
        if len(batch) == 1 and outcomes[0][1] is not None:
            self._undo(database)
            failure = None
        else:
            failure = self._finish(database)
        # Told after the commit: what a request found may rest on what another of the same commit did.
        told += [(request, failure or own) for request, own in outcomes]

    def _finish(self, database: sqlite3.Connection) -> OutliveError | None:
        try:
            database.execute(SETUP["commit"])
        except sqlite3.Error as error:
            failure = commit_failure(database, error, self._store)
            self._undo(database)
            if isinstance(failure, CommitUnknown):
                self._drop()
            return failure
        return None

    def _undo(self, database: sqlite3.Connection) -> None:
        try:
            if database.in_transaction:
                database.execute(SETUP["rollback"])
        except sqlite3.Error:
            # Closing it rolls back as well.
            self._drop()

    def _connected(self) -> sqlite3.Connection:
        if self._database is None:
            self._database = self._connect()
        return self._database

    def _drop(self) -> None:
        _close(self._database)
        self._database = None

    def _failed(self, error: sqlite3.Error) -> OutliveError:
        failure = translated(error, self._store)
        if isinstance(failure, StoreBusy):
            return self._turnstile.busy()
        if isinstance(failure, StoreUnavailable):
            self._drop()
        return failure

    def _refuse(self, batch: list[Request], error: BaseException) -> None:
        for request in batch:
            request.answer(error)


def _tell(told: Sequence[Told]) -> None:
    """Answer each; those of one event loop together, so that it is woken once."""
    awaited: dict[asyncio.AbstractEventLoop, list[tuple[Awaited[object], BaseException | None]]] = {}
    for request, failure in told:
        if isinstance(request, Awaited):
            awaited.setdefault(request.loop, []).append((request, failure))
        else:
            request.answer(failure)
    for loop, answers in awaited.items():
        # A loop that is closed has nobody to be told.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, answers)


def _deliver(answers: Sequence[tuple[Awaited[object], BaseException | None]]) -> None:
    for request, failure in answers:
        request.deliver(failure)


class _Spoiled(Exception):
    """A request failed in the middle of what it wrote, and there is no savepoint to go back to."""


class _Wake(Request):
    """Makes the writer look at the urgent requests."""

    def abandoned(self) -> bool:
        return True

    def perform(self, database: sqlite3.Connection, now: int) -> None:
        raise NotImplementedError

    def answer(self, error: BaseException | None) -> None:
        return


_WAKE = _Wake()


def commit_failure(database: sqlite3.Connection, error: sqlite3.Error, store: str) -> StoreError:
    """What a failed COMMIT means. With the transaction still open, or short of space, nothing is written; after any
    other error the last page may be on the disk and be found by the next process that opens the file.
    """
    failure = translated(error, store)
    return failure if database.in_transaction or isinstance(failure, StoreFull) else CommitUnknown(store=store)


def _attempt(database: sqlite3.Connection, request: Request, now: int, *, shared: bool) -> Exception | None:
    """Perform a request in the open transaction; its own failure (not the driver's) is undone and returned."""
    apart = shared and not request.decides_first
    if apart:
        database.execute(SETUP["savepoint"])
    try:
        request.perform(database, now)
    except sqlite3.Error:
        raise
    except Exception as error:
        if shared and not apart and not isinstance(error, OutliveError):
            raise _Spoiled from error
        if apart:
            database.execute(SETUP["undo_savepoint"])
            database.execute(SETUP["release_savepoint"])
        return error
    if apart:
        database.execute(SETUP["release_savepoint"])
    return None


def _close(database: sqlite3.Connection | None) -> None:
    if database is not None:
        database.close()
