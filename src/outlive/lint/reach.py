"""From each agent through the functions that it calls, to what is wrong in any of them."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterable, Mapping
from types import FunctionType

from outlive.lint.finding import NOTES, Finding, Found, Hop, Place, Report
from outlive.lint.known import ABSENT, UNKNOWN, Known, hints
from outlive.lint.names import Names
from outlive.lint.own import Own
from outlive.lint.reading import Reading
from outlive.lint.source import syntax_of
from outlive.lint.walk import begin

# A function, and which class or shared object its first parameter is bound to.
Key = tuple[object, object, int]


def check(agents: Mapping[str, object], tools: Iterable[object], packages: Iterable[str] = ()) -> Report:
    """Read the functions of agents, by the agents' names, and what they call.

    The packages that define agents or tools are the user's own, and so are those named.
    """
    names = Names()
    own = Own.of([*agents.values(), *tools], names)
    own = Own(own.packages | frozenset(packages), names)
    reader, report, run = _Reader(own), Report(), names.class_named("outlive.engine.run.Run")
    for name, function in sorted(agents.items()):
        started = [(fn, Known(kind=run) if _untyped(fn) else of) for fn, of in own.reached(Known(live=function))]
        if not started:
            report.frameworks.append(name)
            continue
        report.agents.append(name)
        for fn, of in started:
            reader.follow(name, fn, of)
    reader.sum_up(report)
    return report


class _Reader:
    """Reads each function once, whoever calls it."""

    def __init__(self, own: Own) -> None:
        self._own = own
        self._read: dict[Key, Reading | None] = {}
        self._ways: dict[Key, dict[str, tuple[Hop, ...]]] = {}
        self._chains: dict[Found, dict[str, tuple[Hop, ...]]] = {}
        self._unread: dict[str, None] = {}
        self._counted: set[object] = set()

    def follow(self, agent: str, fn: FunctionType, of: Known) -> None:
        """Breadth first, so that the chain of a finding is the shortest there is."""
        seen: set[Key] = set()
        waiting: deque[tuple[FunctionType, Known, tuple[Hop, ...]]] = deque([(fn, of, ())])
        while waiting:
            fn, of, chain = waiting.popleft()
            key = _key(fn, of)
            reading = self._reading(fn, of) if key not in seen else None
            seen.add(key)
            if reading is None:
                continue
            self._ways.setdefault(key, {})[agent] = chain
            for one in reading.found:
                self._reached(one, reading, {agent: chain})
            for led in reading.calls:
                waiting.append((led.fn, led.of, (*chain, Hop(reading.name, led.place))))

    def sum_up(self, report: Report) -> None:
        """Put what was found into a report, by file and line."""
        self._marks()
        for found, chains in sorted(self._chains.items(), key=lambda one: _order(one[0])):
            (report.notes if found.code in NOTES else report.findings).append(Finding(found, chains))
        report.functions = len(self._counted)
        report.unread = sorted(self._unread)

    def _reading(self, fn: FunctionType, of: Known) -> Reading | None:
        key = _key(fn, of)
        if key in self._read:
            return self._read[key]
        # While it is being read it gives nothing that is known: functions may call each other in a ring.
        self._read[key] = None
        syntax = syntax_of(fn.__code__)
        if syntax is None:
            self._unread[f"{fn.__module__}.{fn.__qualname__}"] = None
            return None
        source, node = syntax
        walk = begin(fn, of, self._own, source, node, self._infer)
        try:
            walk.run(node)
        except RecursionError:
            # As deep as what a program writes, and no person.
            self._unread[f"{fn.__module__}.{fn.__qualname__}"] = None
            return None
        self._read[key] = walk.reading
        self._counted.add(fn.__code__)
        return walk.reading

    def _infer(self, fn: FunctionType, of: Known) -> Known:
        if not self._own.has(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            return UNKNOWN
        reading = self._reading(fn, of)
        return reading.gives if reading is not None else UNKNOWN

    def _reached(self, found: Found, reading: Reading, ways: Mapping[str, tuple[Hop, ...]]) -> None:
        chains = self._chains.setdefault(found, {})
        for agent, chain in ways.items():
            chains.setdefault(agent, (*chain, Hop(reading.name, found.place)))

    def _marks(self) -> None:
        """Comments that silence nothing, or that give no reason."""
        readings = [(one, self._ways[key]) for key, one in self._read.items() if one is not None and key in self._ways]
        used = {(one.source.file, line) for one, _ in readings for line in one.used}
        for one, ways in readings:
            for line, reason in one.source.marks.items():
                if one.first <= line <= one.last and (one.source.file, line) not in used:
                    place = Place(one.source.file, line, 1)
                    code = "unused" if reason else "reason"
                    self._reached(Found(code, place, one.source.line(line), "# outlive: replays"), one, ways)


def _untyped(fn: FunctionType) -> bool:
    """Whether it does not say what its first parameter is. Of an agent, that is a run."""
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    return bool(names) and names[0] not in hints(fn)


def _key(fn: FunctionType, of: Known) -> Key:
    bound = of.live if isinstance(of.live, type) else of.cls
    return fn.__code__, bound, id(of.live) if of.shared and of.live is not ABSENT else 0


def _order(found: Found) -> tuple[str, int, int, str]:
    return found.place.file, found.place.line, found.place.column, found.code
