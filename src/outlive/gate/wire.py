"""What the process that reads the store and those that replay say to each other, in frames over a socket.

Whoever replays has no store and no network; it asks for what it needs to know. Only what reads can be asked for.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import marshal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from types import GenericAlias
from typing import cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter

from outlive.gate.judged import Judged
from outlive.gate.recorded import Recorded
from outlive.log.entry import Entry
from outlive.model.errors import Refused
from outlive.model.ids import Tenant
from outlive.model.run import RunRow
from outlive.store.bundles import Bundles
from outlive.store.keeping import Kept
from outlive.store.port import Store
from outlive.store.reading import READS

_HEX = ConfigDict(ser_json_bytes="hex", val_json_bytes="hex")
_PORTS = (Store, Bundles)
_SIZE = 8
TAKE, TELL, CALL = "take", "tell", "call"


@dataclass(frozen=True, slots=True)
class Frame:
    """A message: what it is, which question it belongs to, and a value: JSON, but for a run."""

    what: str
    number: int
    name: str = ""
    body: bytes = b"null"


class Line:
    """One end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, frame: Frame) -> None:
        """Raises ConnectionError when nobody is there."""
        head = json.dumps([frame.what, frame.number, frame.name]).encode()
        sizes = len(head).to_bytes(_SIZE, "big") + len(frame.body).to_bytes(_SIZE, "big")
        self._writer.write(b"".join((sizes, head, frame.body)))
        await self._writer.drain()

    async def receive(self) -> Frame | None:
        """The next frame, None at the end."""
        try:
            sizes = await self._reader.readexactly(2 * _SIZE)
            head = await self._reader.readexactly(int.from_bytes(sizes[:_SIZE], "big"))
            body = await self._reader.readexactly(int.from_bytes(sizes[_SIZE:], "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        what, number, name = json.loads(head)
        return Frame(what, number, name, body)

    def close(self) -> None:
        """Let the other end see the end."""
        self._writer.close()


JUDGED = TypeAdapter(Judged)


class _Adapter:
    """JSON of one type, with bytes in hex. A dataclass takes a configuration only inside of something else."""

    def __init__(self, hint: object) -> None:
        listed = cast("type[list[object]]", GenericAlias(list, (hint,)))
        self._adapter = TypeAdapter(listed, config=_HEX)

    def dump(self, value: object) -> bytes:
        return self._adapter.dump_json([value])

    def load(self, text: str | bytes) -> object:
        return self._adapter.validate_json(text)[0]


_ROW = _Adapter(RunRow)


def packed(one: Recorded) -> bytes:
    """A run on its way to whoever replays it: without what only the chain of its log needs.

    Not JSON: there are many of these, and both ends are this interpreter.
    """
    entries = [(e.seq, e.kind, e.version, e.at, e.scope, e.key, e.body, e.payload) for e in one.entries]
    return marshal.dumps((_ROW.dump(one.row), one.key, str(one.whose), entries))


def unpacked(body: bytes) -> Recorded:
    """What was packed."""
    row, key, whose, entries = marshal.loads(body)
    read = [
        Entry(seq, 0, kind, version, at, scope, key, body, payload, None, "", "", b"")
        for seq, kind, version, at, scope, key, body, payload in entries
    ]
    return Recorded(cast("RunRow", _ROW.load(row)), read, key, Tenant(whose))


@dataclass(frozen=True, slots=True)
class _Read:
    """How a question to a store travels: the types of its arguments, and of its answer."""

    parameters: dict[str, _Adapter]
    answer: _Adapter
    names: tuple[str, ...]

    def asked(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        given = {**dict(zip(self.names, args, strict=False)), **kwargs}
        known = {name: value for name, value in given.items() if name in self.parameters}
        texts = {name: self.parameters[name].dump(value).decode() for name, value in known.items()}
        return json.dumps(texts).encode()

    def arguments(self, body: bytes) -> dict[str, object]:
        return {name: self.parameters[name].load(value) for name, value in json.loads(body).items()}


@cache
def _read(name: str) -> _Read:
    """By what the ports declare. Raises Refused for what does not read."""
    declared = next((getattr(port, name) for port in _PORTS if hasattr(port, name)), None)
    if name not in READS or declared is None:
        raise Refused(what=f"{name} of the store", why="the store is only read here")
    hints = get_type_hints(declared)
    names = tuple(one for one in inspect.signature(declared).parameters if one != "self")
    # The clock is that of whoever reads.
    adapters = {one: _Adapter(hints[one]) for one in names if one != "now"}
    return _Read(adapters, _Adapter(hints["return"]), names)


async def answered(store: Kept, name: str, body: bytes) -> bytes:
    """What the store says to such a question."""
    read = _read(name)
    ask = cast("Callable[..., Awaitable[object]]", getattr(store, name))
    return read.answer.dump(await ask(**read.arguments(body)))


class Asking:
    """The end that replays: what `read_only` needs of a store, and the place where work comes from."""

    name = "the store"

    def __init__(self, line: Line) -> None:
        self._line = line
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Frame]] = {}

    async def listen(self) -> None:
        """Hand out what comes in, until the other end has gone."""
        while (frame := await self._line.receive()) is not None:
            waiting = self._waiting.pop(frame.number, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame)
        for one in self._waiting.values():
            if not one.done():
                one.cancel()

    async def ask(self, what: str, name: str = "", body: bytes = b"null") -> Frame:
        """One question, and its answer."""
        number = next(self._numbers)
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        await self._line.send(Frame(what, number, name, body))
        return await answer

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        if name.startswith("_"):
            raise AttributeError(name)
        read = _read(name)

        async def call(*args: object, **kwargs: object) -> object:
            answer = await self.ask(CALL, name, read.asked(args, kwargs))
            return read.answer.load(answer.body)

        return call
