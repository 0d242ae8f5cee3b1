"""What the command line asks for: settings, an open store, a run started, driven, described, decided.

A verb that only reads never makes a database, and needs no application.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import cast, get_args
from urllib.parse import unquote, urlsplit

from outlive.app import bulk, decide, inspect, mail
from outlive.app.approvals import Approvals, approvals_in
from outlive.app.client import last_entry
from outlive.app.compose import open_store
from outlive.app.explain import stall_of
from outlive.app.given import check_filter
from outlive.app.keys import Link, chains
from outlive.app.locate import locate
from outlive.app.outlive import Outlive
from outlive.app.registry import Registry
from outlive.app.settings import Settings
from outlive.engine import forking
from outlive.engine.adoption import Acceptance, Choice, Step, choices
from outlive.engine.control import Control
from outlive.engine.definition import Agent
from outlive.engine.later import moment
from outlive.engine.worker import owner_name
from outlive.log import kinds
from outlive.log.difference import Adoption
from outlive.log.fold import fold
from outlive.model.clock import SystemClock
from outlive.model.errors import (
    BadArguments,
    NotSerialisable,
    RunExists,
    SettingInvalid,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    UndecodableEntry,
    UnknownOperation,
    UnknownRun,
)
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import IN_DOUBT, OPEN, OperationRow
from outlive.model.run import Block, RunFilter, RunRow, Status, refusal_to_fork
from outlive.store.keeping import Kept
from outlive.store.port import Divergence, Store, WorkerRow

log = logging.getLogger("outlive.worker")

# A worker renews its sign of life with its leases; three missed ones of the longest usual lease, and it is gone.
ALIVE_MS = 60_000
_PAGE = 500

# Why a run can be blocked.
REASONS: tuple[str, ...] = get_args(Block)


def application(name: str | None, /, **given: object) -> tuple[Outlive[object], Settings]:
    """The application that an option or the environment names, and the settings of a process that uses it.

    Raises SettingInvalid, and what registering its agents and tools raises.
    """
    app = locate(Settings.load(None, app=name))
    return app, settings_of(app, **{**given, "app": name})


def settings_of(app: Outlive[object] | None, /, **given: object) -> Settings:
    """Settings from options (None: not given). What the application itself names comes after them."""
    own = app.settings() if app is not None else None
    named = {
        name: getattr(own, name)
        for name in ("store", "notify")
        if own is not None and given.get(name) is None and own.sources.get(name) == "option"
    }
    found = Settings.load(None, **{**given, **named})
    return replace(found, sources={**found.sources, **dict.fromkeys(named, "application")})


def check_serves(app: Outlive[object], settings: Settings) -> None:
    """Refuse to serve an application that has nothing to serve. Raises SettingInvalid."""
    if not app.registry.agents:
        why = "it registers no agent; is the module that does in include=[…] of the application?"
        source = settings.sources.get("app", "option")
        raise SettingInvalid(name="app", value=settings.app, source=source, why=why)


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Kept]:
    """The store, open, for as long as the block runs. Nothing is made or migrated.

    Raises StoreUnavailable where there is none yet or an older release made it, NotAStore where there is something
    else, SchemaTooNew.
    """
    check_place(settings.store)
    store = await open_store(settings, SystemClock(), existing=True)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def opened(app: Outlive[object], settings: Settings) -> AsyncIterator[Store]:
    """The application with its store open; a new database is made where there is none."""
    check_place(settings.store)
    await app.open(settings)
    try:
        yield app.opened
    finally:
        await app.close()


async def reached(app: Outlive[object], settings: Settings, stopped: Callable[[], bool]) -> bool:
    """Open the application's store, waiting for as long as it can be hoped to let us in; False once `stopped` says so.

    Raises what opening it raises when it will not pass by itself.
    """
    clock, pause = SystemClock(), 0.5
    check_place(settings.store)
    while not stopped():
        try:
            await app.open(settings)
            return True
        except (StoreBusy, StoreFull, StoreUnavailable) as error:
            if isinstance(error, StoreUnavailable) and not error.passing:
                raise
            log.warning("the store cannot be opened, trying again: %s", error)
            # Many workers that wait for one database do not all come back at once.
            await clock.sleep(pause * (0.5 + clock.random()))
            pause = min(pause * 1.5, 4.0)
    return False


def check_place(url: str) -> None:
    """Raises StoreUnavailable for a file that cannot be one. Other URLs pass."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or parts.path in ("", "/"):
        return
    path = Path(unquote(parts.path[1:]))
    if not path.parent.is_dir():
        raise StoreUnavailable(store=url, why=f"there is no directory {path.parent}")
    if path.is_dir():
        raise StoreUnavailable(store=url, why=f"{path} is a directory, not a file")


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A run that is asked for. `input` is what was typed, None where nothing was."""

    agent: str
    input: str | None = None
    id: str | None = None
    queue: str = "default"
    priority: int = 0
    deadline: timedelta | None = None
    principal: str = ""
    purpose: str = ""
    labels: dict[str, str] = field(default_factory=dict)


async def start(app: Outlive[object], tenant: str, wish: Wish) -> str:
    """Start the run durably, or find the one that has the id; its id.

    With an id and no input, a run that exists is found whatever its input was. Raises UnknownAgent, BadArguments,
    RunExists.
    """
    agent = cast("Agent[object, object]", app.registry.agent(wish.agent))
    if wish.id is not None and wish.input is None:
        row = await app.opened.run(Tenant(tenant), RunId(wish.id))
        if row is not None and row.agent != agent.name:
            raise RunExists(run=row.id, differs=f"agent ({row.agent})")
        if row is not None:
            return row.id
    try:
        handle = await app.start(
            agent, read_input(agent, wish.input), id=wish.id, queue=wish.queue, priority=wish.priority,
            deadline=wish.deadline, tenant=tenant, principal=wish.principal, purpose=wish.purpose, labels=wish.labels,
        )  # fmt: skip
    except NotSerialisable as error:
        raise BadArguments(function=agent.name, why=str(error)) from None
    return handle.id


def read_input(agent: Agent[object, object], text: str | None) -> object:
    """The input as the agent takes it: JSON, or a bare word where the agent takes a string. Raises BadArguments."""
    try:
        json.loads(text if text is not None else "null")
        as_json = text if text is not None else "null"
    except (ValueError, RecursionError) as error:
        as_json, bare = json.dumps(text), str(error)
    else:
        bare = ""
    try:
        return agent.input.decode(as_json, where="its input")
    except UndecodableEntry as error:
        if text is None:
            why = f"it needs an input, a {agent.input.name}: {error.why}"
        elif bare:
            why = f"the input is not JSON ({bare}), and as a string it does not fit: {error.why}"
        else:
            why = f"the input does not fit: {error.why}"
        raise BadArguments(function=agent.name, why=why) from None


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that is known of a run: who owns it, what it has done to the world, what it waits for."""

    row: RunRow
    now: int
    operations: list[OperationRow]
    divergences: list[Divergence]
    serving: list[WorkerRow]
    owner: WorkerRow | None
    unread: int
    questions: list[mail.Question]
    result: str | None
    error: str
    adoptable: list[Choice] = field(default_factory=list)
    rollbacks: list[RunRow] = field(default_factory=list)
    in_doubt_elsewhere: list[OperationRow] = field(default_factory=list)
    awaited: list[list[Link]] = field(default_factory=list)
    """For each business key that the run waits for, whose it is, to the root."""

    @property
    def stall(self) -> str:
        """What is wrong with the event loop of the owner; empty where it turns."""
        return stall_of(self.owner, self.now) if self.owner is not None else ""

    @property
    def in_doubt(self) -> list[OperationRow]:
        """Operations of which it is not known whether they happened; one in flight on a live worker is none of them."""
        return [one for one in self.operations if one.status in IN_DOUBT and self.row.status != "running"]

    @property
    def later(self) -> list[OperationRow]:
        """Operations whose outcome is to come: the other side tells it."""
        return [one for one in self.operations if one.status == "later"]

    @property
    def held(self) -> list[OperationRow]:
        """Operations that are not sent, because another run of the same origin has done the same."""
        return [one for one in self.operations if one.status == "held" and not self.row.ended]


async def report(store: Store, tenant: str, run: str) -> Report:
    """Read all that is known of a run. Raises UnknownRun."""
    row = await store.run(Tenant(tenant), RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    workers = await store.workers(within_ms=ALIVE_MS)
    result, error = None, ""
    if row.ended:
        ended, result = await last_entry(store, row)
        error = f"{ended.error.type}: {ended.error.message}" if ended.error else ended.reason
    awaited = await chains(store, row)
    return Report(
        row=row, now=await store.now(), operations=await _explained(store, row),
        divergences=await store.divergences(row.tenant, row.id),
        serving=[one for one in workers if one.fits(row)],
        owner=next((one for one in workers if one.owner == row.owner), None),
        unread=len(await store.unread(row.tenant, row.id)),
        questions=await mail.readable_questions(store, row), result=result, error=error,
        adoptable=await _adoptable(store, row), rollbacks=await store.rollbacks(row.tenant, row.id),
        in_doubt_elsewhere=await _elsewhere(store, row, awaited), awaited=awaited,
    )  # fmt: skip


async def _elsewhere(store: Store, row: RunRow, awaited: list[list[Link]]) -> list[OperationRow]:
    """Operations in doubt of other runs that keep it from going on: those that have a business key for which it waits.
    A rollback waits for those of the run that it undoes, and of other rollbacks.
    """
    ends = [chain[-1].key.mark.operation for chain in awaited]
    keyed = [one for id in ends if (one := await store.operation(row.tenant, id)) and one.status in IN_DOUBT]
    if row.rolls_back is None or row.status != "blocked":
        return keyed
    others = [one.id for one in await store.rollbacks(row.tenant, row.rolls_back) if one.id != row.id]
    found = [one for run in (row.rolls_back, *others) for one in await store.operations(row.tenant, run)]
    return [*keyed, *(one for one in found if one.status in IN_DOUBT)]


async def _adoptable(store: Store, row: RunRow) -> list[Choice]:
    if row.reason != "diverged":
        return []
    try:
        return choices(fold(await store.window(row.tenant, row.id)), row.id)
    except UndecodableEntry:
        return []


async def _explained(store: Store, row: RunRow) -> list[OperationRow]:
    """The operations; those in doubt, or with an outcome to come, with what is said of that as their error, which only
    the log has.
    """
    found = await store.operations(row.tenant, row.id)
    if not any(one.status in OPEN for one in found):
        return found
    whys: dict[str, str] = {}
    notes: dict[str, str] = {}
    after = -1
    while page := await store.entries(row.tenant, row.id, after=after, limit=_PAGE):
        after = page[-1].seq
        for entry in page:
            fact = kinds.read(entry) if entry.kind in _EXPLAINING else None
            if isinstance(fact, kinds.InDoubt):
                whys[fact.operation] = fact.why
            elif isinstance(fact, kinds.Later):
                whys[fact.operation] = f"waits for its outcome until {moment(fact.until)}"
            elif isinstance(fact, kinds.LookedUp):
                notes[fact.operation] = f"; looked up {fact.number} times: {fact.answer} {fact.note}".rstrip()
    return [
        replace(one, error=whys[one.id] + notes.get(one.id, ""))
        if one.status in OPEN and not one.error and one.id in whys
        else one
        for one in found
    ]


_EXPLAINING = frozenset((kinds.InDoubt.KIND, kinds.LookedUp.KIND, kinds.Later.KIND))


async def listed(
    store: Store, tenant: str, *, statuses: Sequence[Status] = (), agent: str = "", reason: str = "",
    labels: Mapping[str, str] | None = None, limit: int = 100, paused: bool | None = None,
) -> tuple[list[RunRow], int]:  # fmt: skip
    """Runs that match, newest first, and the time by the database's clock."""
    which = check_filter(RunFilter(tuple(statuses), agent, reason, labels or {}, limit, paused=paused))
    return await store.runs(Tenant(tenant), which), await store.now()


async def stalls(store: Store) -> dict[str, str]:
    """The workers whose event loop does not turn, with what is known of it."""
    now = await store.now()
    return {one.owner: stall for one in await store.workers(within_ms=ALIVE_MS) if (stall := stall_of(one, now))}


async def log_lines(
    store: Store, tenant: str, run: str, *, after: int = -1, follow: bool = False
) -> AsyncIterator[inspect.Line]:
    """The log of a run, and as it grows until the run ends if `follow`. Raises UnknownRun, UndecodableEntry."""
    source = (
        inspect.follow(store, SystemClock(), Tenant(tenant), run, after=after)
        if follow
        else inspect.lines(store, Tenant(tenant), run, after=after)
    )
    async for line in source:
        yield line


async def questions(store: Store, tenant: str, run: str | None, *, limit: int) -> list[mail.Question]:
    """Open questions of one run, or of up to `limit` runs. Raises UnknownRun."""
    if run is not None:
        return await mail.questions(store, Tenant(tenant), RunId(run))
    return await mail.all_questions(store, Tenant(tenant), limit=limit)


async def send(store: Store, tenant: str, run: str, topic: str, text: str, key: str) -> tuple[bool, RunRow]:
    """Send JSON to a run. Whether it is new, and the run after that. Raises UnknownRun, Refused, BadArguments."""
    body = mail.check_json(text, "the message")
    new = await mail.send(store, Tenant(tenant), RunId(run), topic, body, key, None)
    row = await store.run(Tenant(tenant), RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    return new, row


async def answer(store: Store, tenant: str, run: str, named: str, text: str, who: str) -> mail.Question:
    """Answer an open question. Raises UnknownRun, UnknownQuestion, BadArguments."""
    asked = await mail.asked(store, Tenant(tenant), RunId(run), named)
    body = mail.check_answer(asked, text)
    await mail.answer(store, Tenant(tenant), asked.run, asked.id, body, who, None)
    return asked


async def resolve(
    store: Store, app: Outlive[object] | None, tenant: str, run: str, operation: str, decision: decide.Word, *,
    who: str, why: str, outcome: str | None = None,
) -> tuple[OperationRow, RunRow]:  # fmt: skip
    """See `decide.resolve`; the operation as it was found, and the run after the decision.

    Only *happened* needs the application: it has the tool's result type.
    """
    registry = app.registry if app is not None else Registry()
    operation = await _whole(store, tenant, run, operation)
    found = await decide.resolve(
        _control(store), registry, Tenant(tenant), run, operation, decision, who=who, why=why, outcome=outcome
    )
    row = await store.run(found.tenant, found.run)
    assert row is not None
    return found, row


def approvals(store: Store, app: Outlive[object] | None, tenant: str) -> Approvals:
    """The approvals of a tenant. Only who edits arguments needs the application, which also says who has which role."""
    roles = app.roles if app is not None else None
    return approvals_in(store, SystemClock(), tenant, app.registry if app is not None else None, roles)


async def _whole(store: Store, tenant: str, run: str, prefix: str) -> str:
    """The id that begins so, if there is one at all. Raises UnknownOperation where several do."""
    ids = tuple(one.id for one in await store.operations(Tenant(tenant), RunId(run)) if one.id.startswith(prefix))
    if prefix in ids or not ids:
        return prefix
    if len(ids) > 1:
        raise UnknownOperation(run=run, operation=prefix, matches=ids)
    return ids[0]


async def retry(store: Store, tenant: str, run: str, *, who: str, why: str) -> None:
    """See `decide.retry`."""
    await decide.retry(_control(store), Tenant(tenant), run, who=who, why=why)


async def adopt(
    store: Store, tenant: str, run: str, how: Adoption, *, who: str, why: str, at: int | None = None,
    step: tuple[str, str] | None = None,
) -> kinds.Adopted:  # fmt: skip
    """See `decide.adopt`; `step` is the name and digest of the step that code will ask for."""
    ahead = Step(*step) if step is not None else None
    return await decide.adopt(_control(store), Tenant(tenant), run, Acceptance(how, who, why, at, ahead))


def retrying(who: str, why: str) -> bulk.Verb:
    """`retry` for many runs."""

    async def verb(store: Store, row: RunRow) -> str:
        await _control(store).retry(row, who=who, why=why)
        return "ready again"

    return verb


async def fork(
    store: Store, tenant: str, run: str, *, at: int | None, who: str, why: str, id: str | None, repeat_effects: bool
) -> RunRow:
    """See `forking.fork`."""
    wish = forking.Wish(at=at, who=who, why=why, id=id, repeat_effects=repeat_effects)
    return await forking.fork(store, SystemClock(), Tenant(tenant), RunId(run), wish)


_FORKED = "left alone: it was restarted or forked before"


def restarting(who: str, why: str, *, repeat_effects: bool) -> bulk.Verb:
    """`restart` for many runs. One that was forked before is left alone, so that the same command twice is harmless."""

    async def verb(store: Store, row: RunRow) -> str:
        if row.forked:
            return bulk.Left(_FORKED)
        wish = forking.Wish(at=0, who=who, why=why, repeat_effects=repeat_effects)
        made = await forking.fork(store, SystemClock(), row.tenant, row.id, wish)
        return f"restarted as {made.id}"

    return verb


async def would_restart(store: Store, row: RunRow) -> str:
    """The dry run of `restarting`: it changes nothing, and fails where that would."""
    if row.forked:
        return bulk.Left(_FORKED)
    if (refusal := refusal_to_fork(row.id, row)) is not None:
        raise refusal
    return await bulk.would(store, row)


async def many(store: Store, tenant: str, which: RunFilter, verb: bulk.Verb) -> AsyncIterator[bulk.Done]:
    """See `bulk.each`."""
    async for done in bulk.each(store, Tenant(tenant), which, verb):
        yield done


async def filtered(
    store: Store, *, statuses: Sequence[Status] = (), agent: str = "", reason: str = "",
    labels: Mapping[str, str] | None = None, older_than: timedelta | None = None, paused: bool | None = None,
) -> RunFilter:  # fmt: skip
    """A filter whose age is measured by the database's clock."""
    before = None if older_than is None else await store.now() - int(older_than.total_seconds() * 1000)
    return check_filter(RunFilter(tuple(statuses), agent, reason, labels or {}, before=before, paused=paused))


async def found(store: Store, tenant: str, run: str) -> RunRow:
    """The run. Raises UnknownRun."""
    row = await store.run(Tenant(tenant), RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    return row


def _control(store: Store) -> Control:
    clock = SystemClock()
    return Control(store, clock, owner_name(clock))
