"""Text that calls stream while they are being made, on its way to whoever follows their run. None of it is in the log.

No call waits for it, and no error of it reaches one: one task of the worker writes what has gathered, a few times in a
second, and takes away what a record has superseded. What has not been written when that comes is never written, and a
crash loses the rest.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar

from outlive.engine.failures import writable
from outlive.engine.journal import Journal
from outlive.model.clock import Clock
from outlive.model.errors import BadArguments, StoreError
from outlive.model.ids import RunId, Tenant
from outlive.model.run import Authority
from outlive.secret.scrubber import Scrubber
from outlive.store.streaming import Delta, Over, Streaming

log = logging.getLogger("outlive.streaming")

# Between two writes of a worker, in seconds.
BETWEEN_S = 0.1
# Characters: of a piece, of an attempt at a call, of all calls of a run that are being made. What is more is left out.
MOST_OF_PIECE, MOST_OF_CALL, MOST_OF_RUN = 16_384, 262_144, 1_048_576
# Pieces that one write takes, and superseded calls that are remembered while the store does not answer.
MOST_AT_ONCE, MOST_OVER = 200, 1000


class Stream:
    """What one attempt at one call streams. From any thread."""

    def __init__(
        self, streams: Streams, call: str, name: str, *, epoch: int, number: int, ends: Callable[[], int],
        authority: Callable[[], Authority],
    ) -> None:  # fmt: skip
        self.call, self.name, self.epoch, self.number = call, name, epoch, number
        self.ends, self.authority = ends, authority
        self.run = authority().tenant, authority().run
        self.waiting = list[str]()
        self.accepted = self.place = 0
        self.after_seq = 0
        self.written = self.closed = False
        self._streams = streams

    def add(self, text: str) -> None:
        """Let it be seen soon; what is beyond a limit is left out. Raises BadArguments for what is no text."""
        if not isinstance(text, str):
            raise BadArguments(function=f"stream of {self.name}", why=f"a text is streamed, not {type(text).__name__}")
        self._streams.add(self, text)

    def close(self) -> None:
        """The attempt is over."""
        self._streams.close(self)


class Streams:
    """Those of one worker. Made on its event loop."""

    def __init__(self, store: Streaming, clock: Clock, scrubber: Scrubber) -> None:
        self._store, self._clock, self._scrubber = store, clock, scrubber
        self._loop = asyncio.get_running_loop()
        # Guards what is below.
        self._lock = threading.Lock()
        self._waiting: dict[Stream, None] = {}
        self._over: list[Over] = []
        self._accepted: Counter[tuple[Tenant, RunId]] = Counter()
        self._writing: asyncio.Task[None] | None = None
        self._woken = self._ending = False

    def add(self, stream: Stream, text: str) -> None:
        """See `Stream.add`."""
        with self._lock:
            left = min(MOST_OF_CALL - stream.accepted, MOST_OF_RUN - self._accepted[stream.run])
            text = text[: max(0, left)]
            if stream.closed or self._ending or not text:
                return
            stream.waiting.append(text)
            stream.after_seq = stream.ends()
            stream.accepted += len(text)
            self._accepted[stream.run] += len(text)
            self._waiting[stream] = None
            self._wake()

    def close(self, stream: Stream) -> None:
        """See `Stream.close`."""
        with self._lock:
            if stream.closed:
                return
            stream.closed = True
            self._waiting.pop(stream, None)
            self._accepted[stream.run] -= stream.accepted
            if self._accepted[stream.run] <= 0:
                del self._accepted[stream.run]
            if stream.written:
                self._end(Over(*stream.run, stream.call, stream.ends()))

    def abandoned(self, tenant: Tenant, run: RunId, before: int) -> None:
        """Nobody is at what was streamed of a run while its log ended before that entry."""
        with self._lock:
            self._end(Over(tenant, run, None, before - 1))

    async def end(self) -> None:
        """Write what is left to be taken away, and begin nothing more."""
        with self._lock:
            self._ending = True
            self._waiting.clear()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait([self._writing])
        await self._write()

    def _end(self, over: Over) -> None:
        if len(self._over) < MOST_OVER:
            self._over.append(over)
        self._wake()

    def _wake(self) -> None:
        if not self._woken and not self._ending:
            self._woken = True
            # Not in the context of the call: it may be inside a transaction, which this is not.
            self._loop.call_soon_threadsafe(self._begin, context=Context())

    def _begin(self) -> None:
        if not self._ending:
            self._writing = asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        while True:
            await self._clock.sleep(BETWEEN_S)
            await self._write()
            with self._lock:
                if not self._waiting and not self._over:
                    self._woken = False
                    return

    async def _write(self) -> None:
        deltas, over = self._take()
        if not deltas and not over:
            return
        try:
            await self._store.add_deltas(deltas, over, now=self._clock.now())
        except asyncio.CancelledError:
            # Whether it was done is not known, and to do it twice is harmless.
            self._keep(over)
            raise
        except StoreError as error:
            log.debug("%d pieces are not seen: %s", len(deltas), error)
            self._keep(over)
        except Exception:
            log.exception("%d pieces are not seen", len(deltas))

    def _keep(self, over: list[Over]) -> None:
        with self._lock:
            self._over[:0] = over
            del self._over[MOST_OVER:]

    def _take(self) -> tuple[list[tuple[Authority, Delta]], list[Over]]:
        """What is to be written now. A stream of which some has to stay has to wait its turn again."""
        deltas: list[tuple[Authority, Delta]] = []
        with self._lock:
            over, self._over = self._over, []
            for stream in list(self._waiting):
                if len(deltas) == MOST_AT_ONCE:
                    break
                del self._waiting[stream]
                text = "".join(stream.waiting)
                piece, rest = text[:MOST_OF_PIECE], text[MOST_OF_PIECE:]
                ready, kept = self._scrubber.split(piece) if self._scrubber.active else (piece, "")
                if rest:
                    self._waiting[stream] = None
                stream.waiting = [kept + rest] if kept or rest else []
                if ready:
                    deltas.append((stream.authority(), self._delta(stream, writable(ready))))
        return deltas, over

    def _delta(self, stream: Stream, text: str) -> Delta:
        place, stream.place, stream.written = stream.place, stream.place + len(text), True
        return Delta(stream.call, stream.epoch, stream.number, stream.name, stream.after_seq, place, text)


current: ContextVar[Stream | None] = ContextVar("outlive_stream", default=None)


class Streamed:
    """What the calls of one attempt at a run stream. Without `streams` nobody sees it.

    All is marked by the epoch of the claim: a run that is claimed again from itself goes on where it was.
    """

    def __init__(self, streams: Streams | None, journal: Journal) -> None:
        self._streams, self._journal = streams, journal
        self._coming: dict[str, Stream] = {}

    @contextmanager
    def within(self, call: str, name: str, number: int) -> Iterator[None]:
        """An attempt at a call, while it lasts: for code that may hold neither run nor operation."""
        if self._streams is None:
            yield
            return
        stream = self._open(self._streams, call, name, number)
        before = current.set(stream)
        try:
            yield
        finally:
            current.reset(before)
            stream.close()

    def toward(self, call: str, name: str, text: str) -> None:
        """Text that an event is going to supersede."""
        if self._streams is not None:
            if call not in self._coming:
                self._coming[call] = self._open(self._streams, call, name, 1)
            self._coming[call].add(text)

    def came(self, call: str) -> None:
        """The event is recorded."""
        if (stream := self._coming.pop(call, None)) is not None:
            stream.close()

    def abandoned(self) -> None:
        """Its worker is gone: whatever was streamed before the claim is taken away."""
        if self._streams is not None:
            row = self._journal.row
            self._streams.abandoned(row.tenant, row.id, row.head.seq)

    def close(self) -> None:
        """The attempt is over."""
        for call in list(self._coming):
            self.came(call)

    def _open(self, streams: Streams, call: str, name: str, number: int) -> Stream:
        journal = self._journal
        return Stream(
            streams, call, name, epoch=journal.row.epoch, number=number, ends=lambda: journal.head.seq,
            authority=lambda: journal.grip.authority,
        )  # fmt: skip


def stream(text: str) -> None:
    """Let whoever follows the run see text of the step or tool that is running: `handle.events(deltas=True)`.

    It is shown soon, or not at all: it is no part of the result, in no log, and gone when the call has its outcome.
    Nothing waits for it. Outside of a call of a run it does nothing, so that a function that uses it can be used alone.
    Raises BadArguments for what is no text.
    """
    if (running := current.get()) is not None:
        running.add(text)
