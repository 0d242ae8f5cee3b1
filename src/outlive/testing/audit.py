"""What must hold of any run, however often its workers died: the log against what was witnessed, and the rows."""

from __future__ import annotations

from collections import Counter

from typing_extensions import TypeVar

from outlive.app.audit import check_chain
from outlive.app.projection import Projection
from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.log.fold import Call, Fold, step
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.operation import UNDER_WAY
from outlive.model.run import RunRow
from outlive.store.survey import Recorded
from outlive.store.telling import Telling
from outlive.testing.world import Witnessed, World

D = TypeVar("D", default=None)

# What can be written once for each call and attempt.
_ONCE = (kinds.Call, kinds.Outcome, kinds.NotActed, kinds.Absent, kinds.Joined, kinds.Ended)

# What a call is, for the comparison of two logs: values drawn anew and numbers of attempts may differ.
Story = dict[str, list[tuple[str, str, str, str, str]]]


async def audit(world: World[D], row: RunRow) -> list[str]:
    """Everything that is wrong with a run that has stopped; empty is good."""
    entries = await whole_log(world, row.id)
    found = _effects(world.witnessed)
    try:
        await check_chain(world.store, DEFAULT_TENANT, row.id)
    except Exception as error:  # noqa: BLE001 - whatever it is, the report names it
        found.append(f"the chain does not verify: {error}")
    found += await _records(world, row, entries)
    found += _verdicts(world.witnessed, entries)
    found += _twice(entries)
    found += _unapproved(entries)
    found += _diverged(entries)
    found += await _told(world, row, entries)
    found += await _secrets(world)
    return found


async def whole_log(world: World[D], run: RunId) -> list[Entry]:
    """All entries of a run."""
    entries: list[Entry] = []
    while page := await world.store.entries(DEFAULT_TENANT, run, after=len(entries) - 1):
        entries += page
    return entries


def _effects(witnessed: list[Witnessed]) -> list[str]:
    """Every execution has an intent of its own before it, and nothing is executed again once its outcome is stored."""
    found: list[str] = []
    allowed: Counter[str] = Counter()
    settled: set[str] = set()
    read: set[str] = set()
    for one in witnessed:
        match one.kind:
            case "intent":
                allowed[one.id] += 1
                if one.id in settled:
                    found.append(f"{one.tool} ({one.id}) has an intent after its outcome")
            case "outcome" | "done":
                settled.add(one.id)
            case "read":
                read.add(one.id)
            case "turn":
                read.clear()
            case "sent":
                found += _sent(one, allowed, settled, read)
    return found


def _sent(one: Witnessed, allowed: Counter[str], settled: set[str], read: set[str]) -> list[str]:
    if one.id in read:
        return [f"{one.tool} ({one.id}) was read again although its result was recorded"]
    if one.id in settled:
        return [f"{one.tool} ({one.id}) was executed again after its outcome was recorded"]
    if one.id.startswith("op-") and one.id not in allowed and one.effect != "transactional":
        return [f"{one.tool} ({one.id}) was executed before its intent was stored"]
    if one.id in allowed:
        allowed[one.id] -= 1
        if allowed[one.id] < 0:
            return [f"{one.tool} ({one.id}) was executed more often than it has intents"]
    return []


def _verdicts(witnessed: list[Witnessed], entries: list[Entry]) -> list[str]:
    """An external tool is executed once, and once more for each record that an attempt did not happen."""
    sent = Counter(one.id for one in witnessed if one.kind == "sent" and one.effect == "external")
    may: Counter[str] = Counter()
    here: set[str] = set()
    for entry in entries:
        match kinds.read(entry):
            case kinds.Intent(operation=id):
                here.add(id)
            case kinds.Absent(operation=id) | kinds.NotActed(operation=id):
                may[id] += 1
            case kinds.Resolved(operation=id, decision="did-not-happen"):
                may[id] += 1
            case _:
                pass
    return [
        f"the external operation {id} was executed {count} times, with {may[id]} records that it had not happened"
        for id, count in sent.items()
        if id in here and count > 1 + may[id]
    ]


def _twice(entries: list[Entry]) -> list[str]:
    """Nothing is written twice: not what a call asked, not what came of one attempt of it."""
    met: set[tuple[str, str, str, int, int]] = set()
    found, turn = [], 0
    for entry in entries:
        fact = kinds.read(entry)
        turn += isinstance(fact, kinds.Turn)
        if not isinstance(fact, _ONCE):
            continue
        attempt = getattr(fact, "attempt", 0)
        about = str(getattr(fact, "approval", "") or getattr(fact, "operation", ""))
        one = entry.kind, entry.key, about, int(attempt), turn
        if one in met:
            found.append(f"entry {entry.seq} ({entry.kind} of {entry.key or 'the run'}) was written before")
        met.add(one)
    return found


def _diverged(entries: list[Entry]) -> list[str]:
    """A run that was cancelled has cleaned up as before, where it did so again."""
    return [
        f"it was cancelled, and its clean-up has diverged: {fact.error.message}"
        for fact in map(kinds.read, entries)
        if isinstance(fact, kinds.Ended) and fact.error is not None and fact.error.type == "Diverged"
    ]


def _unapproved(entries: list[Entry]) -> list[str]:
    """What has asked for an approval is sent only when it was given, and by what was given last."""
    found: list[str] = []
    given: dict[str, tuple[str, str]] = {}
    for entry in entries:
        match kinds.read(entry):
            case kinds.Turn():
                given.clear()
            case kinds.Proposed(approval=id):
                given[entry.key] = "asked", id
            case kinds.Decided(approval=id, decision=decision):
                given[entry.key] = decision, id
            case kinds.Intent(approval=id, name=name) if given.get(entry.key, ("withdrawn", ""))[0] != "withdrawn":
                if given[entry.key] != ("approved", id):
                    found.append(
                        f"entry {entry.seq}: {name} is sent by {id or 'none'}, but {given[entry.key]} is given"
                    )
            case _:
                pass
    return found


async def _records(world: World[D], row: RunRow, entries: list[Entry]) -> list[str]:
    """The run's row and its operation records are what the log says, and one that has ended well leaves no doubt."""
    log, records = Projection(DEFAULT_TENANT, row.id), await world.store.operations(DEFAULT_TENANT, row.id)
    for entry in entries:
        log.take(entry)
    found = [f"the run's row does not fit: {column}: {why}" for column, why in log.of_run(row)]
    found += [
        f"the record of {id} does not fit: {why}"
        for id, why in log.of_operations([Recorded(one.id, one, "", "") for one in records])
    ]
    rows = {one.id: one.status for one in records}
    if row.ended:
        found += [f"the run has ended with {id} {status}" for id, status in rows.items() if status in UNDER_WAY]
    if row.status in ("succeeded", "failed"):
        found += [f"the run has {row.status} with {id} unknown" for id, status in rows.items() if status == "unknown"]
    if await world.store.unread(DEFAULT_TENANT, row.id):
        found.append("there is something unread in the run's inbox")
    return found


async def _told(world: World[D], row: RunRow, entries: list[Entry]) -> list[str]:
    """Somebody is told once of each time that the run was blocked, and of each outcome that became unknown."""
    if not isinstance(world.store, Telling):
        return []
    every = await world.store.notifications(DEFAULT_TENANT, undelivered=True, limit=10_000)
    told = Counter(one.notification.seq for one in every if one.notification.run == row.id)
    found = [f"entry {seq} is told of {count} times" for seq, count in told.items() if count > 1]
    facts = {entry.seq: kinds.read(entry) for entry in entries}
    effects = {fact.operation: fact.effect for fact in facts.values() if isinstance(fact, kinds.Intent)}
    for seq, fact in facts.items():
        match fact:
            case kinds.Blocked(code=""):
                must = True
            case kinds.InDoubt():
                must = effects.get(fact.operation) == "external"
            case _:
                must = False
        if must and not told[seq] and seq > (-1 if row.fork_seq is None else row.fork_seq):  # history is the parent's
            found.append(f"nobody is told of entry {seq} ({fact.KIND})")
    return found


async def _secrets(world: World[D]) -> list[str]:
    """No byte of a secret is stored."""
    stored = await world.ground.stored() if world.secrets.handed_out else b""
    return [f"a secret of {len(one)} letters is stored" for one in world.secrets.handed_out if one.encode() in stored]


def calls(entries: list[Entry]) -> list[Call]:
    """All calls of a log in the order in which they were first recorded, also those of turns that are over."""
    state, known = Fold(), dict[int, Call]()
    for entry in entries:
        step(state, entry.seq, kinds.read(entry), entry.scope, entry.key, entry.payload)
        call = state.keys.get(entry.key)
        if call is not None:
            known.setdefault(id(call), call)
    return list(known.values())


def story(entries: list[Entry]) -> Story:
    """What the agent asked for and was told, scope by scope: what a crash or an eviction may not change."""
    told: Story = {}
    for call in calls(entries):
        error = f"{call.error.type}: {call.error.message}" if call.error and call.done else ""
        payload = "" if call.kind == "value" else str(call.payload)
        joined = call.joined.branch if call.joined else ""
        told.setdefault(call.scope, []).append((call.kind, call.key, call.shown, payload + error, joined))
    return told
