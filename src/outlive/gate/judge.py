"""From a rehearsal to a verdict: what the next attempt at a run would come to with this code.

What is said here is held against what live workers do, change by change, in the tests of this room.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from shlex import quote

from outlive.app.registry import Registry
from outlive.engine import adoption, failures
from outlive.engine.adoption import Acceptance
from outlive.engine.attempt import Kit
from outlive.engine.authority import DatabaseTime
from outlive.engine.definition import AgentSpec
from outlive.engine.drive import Harness
from outlive.engine.journal import Item
from outlive.engine.rehearsal import Rehearsed, Stand, Subject, adopt, rehearse
from outlive.gate.judged import Judged, of
from outlive.gate.recorded import Recorded
from outlive.gate.watch import Deed, Watch
from outlive.harness.function import FunctionHarness
from outlive.log import kinds
from outlive.log.fold import Fold, find, fold
from outlive.model.clock import SystemClock
from outlive.model.errors import DataError, Diverged
from outlive.model.ids import DEFAULT_TENANT
from outlive.model.run import RunRow, Status
from outlive.secret.port import ChainSecrets
from outlive.secret.scrubber import Scrubber
from outlive.store.port import Store

# What says where a run stands, and nothing about what its code has done.
_ASIDE = frozenset(
    one.KIND
    for one in (
        kinds.ClaimedBy, kinds.Suspended, kinds.Blocked, kinds.Released, kinds.Retried, kinds.TooLate, kinds.Paused,
        kinds.Resumed, kinds.Ended, kinds.Adopted, kinds.StateAdopted,
    )
)  # fmt: skip
# Of ways to adopt one difference after the other: each is a rehearsal.
_MOST_TRIES = 40
# It was not its code that ended it.
_BY_OTHERS: frozenset[Status] = frozenset(("cancelled", "expired"))


class _Then(SystemClock):
    """The moment at which the log ends: nothing has come due since."""

    def __init__(self, at: int) -> None:
        self._at = at

    def now(self) -> int:
        return self._at


class NoDeps:
    """In the place of what an application depends on, which is not opened: whoever reaches for it is found."""

    def __init__(self, watch: Watch) -> None:
        object.__setattr__(self, "_watch", watch)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)  # what Python itself asks of any object
        watch: Watch = object.__getattribute__(self, "_watch")
        raise watch.found(f"uses run.deps.{name}, which is not opened here (see --deps)")


@dataclass(frozen=True, slots=True)
class Bench:
    """What runs are judged with: the new code, a store to read from, what guards the process, and how long it may take.

    `deps` is what the code finds in `run.deps`.
    """

    registry: Registry
    store: Store
    watch: Watch
    deps: object = None
    limit_s: float = 30.0
    harness: Harness = FunctionHarness()


async def judge(bench: Bench, found: Recorded) -> Judged:
    """What this code would do with the run. Nothing is written."""
    row = found.row
    plain = replace(of(row, entries=len(found.entries)), tenant=found.whose)
    agent = bench.registry.agents.get(row.agent)
    if (why := _unserved(row, agent)) or agent is None:
        return replace(plain, verdict="breaks", why=why)
    try:
        state = fold(found.entries)
    except DataError as error:
        return replace(plain, verdict="breaks", why=str(error))
    last = max((one.seq for one in found.entries if one.kind not in _ASIDE), default=0)
    with _listening() as heard:
        ended = await _rehearsed(bench, agent, found, state)
    if isinstance(ended, Deed):
        return replace(plain, verdict="acts", entry=last, found=ended.what, line=ended.line)
    notes = tuple(dict.fromkeys([*ended.changed, *heard, *bench.watch.take_notes()]))
    told = _said(replace(plain, notes=notes), found, state, ended, last, bench.limit_s)
    if ended.diverged is None or told.verdict != "breaks":
        return told
    ways = [way for way in _ways(state, found, ended.diverged) if await _leads_on(bench, agent, found, way)]
    return replace(told, verdict="needs adoption", remedies=tuple(way.said for way in ways)) if ways else told


def _unserved(row: RunRow, agent: AgentSpec | None) -> str:
    """Why no worker with this code would claim it; empty where one would."""
    if agent is None:
        return f"the application has no agent {row.agent}"
    if row.pin is not None and row.pin != agent.version:
        return f"it is pinned to version {row.pin}, and this is version {agent.version}: it needs a worker of its own"
    return ""


async def _rehearsed(bench: Bench, agent: AgentSpec, found: Recorded, state: Fold) -> Rehearsed | Deed:
    """The rehearsal; or what was done outside of steps."""
    clock = _Then(found.entries[-1].at)
    kit = Kit(
        bench.store, clock, DatabaseTime(clock), bench.registry.tool, ChainSecrets([]), Scrubber(),
        bench.deps, lease_s=30.0, unload_s=1.0, wake_in_place=False,
    )  # fmt: skip
    with bench.watch.over() as deed:
        ended = await rehearse(
            kit, bench.harness, agent, Subject(found.row, state, found.key), limit_s=bench.limit_s, enough=deed
        )  # fmt: skip
    if not deed.done():
        return ended
    found_at = deed.result()
    # On a thread there may be no line of the user's; the agent waits for it somewhere.
    return found_at if found_at.line else replace(found_at, line=ended.report)


def _said(
    plain: Judged, found: Recorded, state: Fold, ended: Rehearsed, last: int, limit_s: float
) -> Judged:  # fmt: skip
    match ended.how:
        case "restless":
            why = f"it has not come to rest within {limit_s:g} s, and what it waits for is no durable call"
            return replace(plain, verdict="breaks", why=why, line=ended.report)
        case "broken off":
            raise AssertionError("what was done is told before")
        case "diverged":
            return _diverged(plain, ended)
        case "fault":
            return replace(plain, verdict="breaks", entry=last, why=ended.report)
        case "ended":
            return _over(plain, found, state, ended, last)
        case "held":
            return _held(plain, found.row, ended.stands, last)


def _held(plain: Judged, row: RunRow, stands: tuple[Stand, ...], last: int) -> Judged:
    """Where nothing but what is recorded as under way is asked for, it is the same."""
    begins = next((one for one in stands if not one.recorded), None)
    if begins is None or row.status in _BY_OTHERS:
        return plain
    found = f"goes on live with {begins.asks}" if begins.asks else "goes on live"
    return replace(plain, verdict="compatible", entry=last, found=found, line=begins.line)


def _over(plain: Judged, found: Recorded, state: Fold, ended: Rehearsed, last: int) -> Judged:
    """The code has ended: as the log did, or otherwise, or where the log has not."""
    if state.cancelling is not None:
        return plain if found.row.ended else replace(plain, verdict="compatible", entry=last, found="ends cancelled")
    error = failures.record(ended.error, Scrubber()) if ended.error is not None else None
    says = f"raises {error.type}: {error.message}" if error is not None else f"returns {_brief(ended.result)}"
    line = error.at if error is not None else ""
    entry = next((one for one in reversed(found.entries) if one.kind == kinds.Ended.KIND), None)
    if entry is None:
        return replace(plain, verdict="compatible", entry=last, found=f"ends: {says}", line=line)
    fact = kinds.read(entry)
    assert isinstance(fact, kinds.Ended)
    if fact.error is None and error is None and entry.payload == ended.result:
        return plain
    if fact.error is not None and error is not None and (fact.error.type, fact.error.message) == (
        error.type, error.message,
    ):  # fmt: skip
        return plain
    was = f"{fact.error.type}: {fact.error.message}" if fact.error is not None else _brief(entry.payload)
    return replace(plain, verdict="compatible", entry=last, found=f"ends otherwise than with {was}: {says}", line=line)


def _diverged(plain: Judged, ended: Rehearsed) -> Judged:
    diverged = ended.diverged
    if diverged is None:
        return replace(plain, verdict="breaks", why=ended.report)
    found, line = diverged.asks, diverged.line
    if ended.error is not None:
        record = failures.record(ended.error, Scrubber())
        found, line = f"{found}, with {record.type}: {record.message}", line or record.at
    return replace(
        plain, verdict="breaks", entry=diverged.seq if diverged.seq >= 0 else None, expected=diverged.has, found=found,
        line=line, why=str(diverged),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to accept a difference: the entry that it would be, and the command with what it means."""

    item: Item
    said: str


def _ways(state: Fold, found: Recorded, diverged: Diverged) -> list[_Way]:
    """How a person can accept it."""
    difference = adoption.difference(diverged)
    if difference is None:
        return []
    tenant = "" if found.whose == DEFAULT_TENANT else f" --tenant {quote(found.whose)}"
    # Nothing is adopted of a run that has ended: it stands for those like it that have not.
    command = "of one like it: outlive adopt RUN" if found.row.ended else f"outlive adopt {quote(found.row.id)}{tenant}"
    state.differences.append(difference)
    call = find(state, difference.scope, difference.entry)
    known = f" --step {quote(call.name)}" if call is not None else ""
    asked = f" --step {quote(difference.name)} --digest {difference.digest}"
    return [
        _Way(
            adoption.adopt(state, found.row.id, Acceptance(one.how, "a person", "it leads on")),
            f"{command} --{one.how} --at {difference.entry}{known if one.how == 'skip' else asked} "
            f"--why …: {one.means}",
        )
        for one in adoption.choices(state, found.row.id)
    ]


async def _leads_on(bench: Bench, agent: AgentSpec, found: Recorded, way: _Way) -> bool:
    """Whether the run goes on after it, as far as can be seen; if not, it ends at what nobody can adopt.

    What a step that is done then will give, nobody knows: behind it nothing is refuted, nor after so many tries.
    """
    paths = [[way.item]]
    for _ in range(_MOST_TRIES):
        taken = paths.pop()
        state = fold(found.entries)
        for item in taken:
            adopt(found.row, state, item)
        ended = await _rehearsed(bench, agent, found, state)
        if isinstance(ended, Deed) or ended.how in ("ended", "held"):
            return True
        if ended.diverged is not None:
            paths += [[*taken, further.item] for further in _ways(state, found, ended.diverged)]
        if not paths:
            return False
    return True


def _brief(text: str | None) -> str:
    said = text if text is not None else "null"
    return said if len(said) <= 120 else said[:119] + "…"


class _Notes(logging.Handler):
    """What adapters of frameworks say of a log that does not stop them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Whatever the application's own configuration of logging lets through, or has switched off."""
    logger, notes = logging.getLogger("outlive.harness"), _Notes()
    disabled, level = logger.disabled, logger.level
    logger.disabled = False
    logger.setLevel(logging.WARNING)
    logger.addHandler(notes)
    try:
        yield notes.heard
    finally:
        logger.removeHandler(notes)
        logger.disabled = disabled
        logger.setLevel(level)
