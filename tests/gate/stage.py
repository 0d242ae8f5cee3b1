"""A run of the old release is driven to where a case says, then workers of the new one take it over."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import cast

from outlive.app import carry, decide, mail
from outlive.app.settings import Settings
from outlive.engine.adoption import Acceptance, choices
from outlive.engine.control import Control
from outlive.engine.definition import Agent
from outlive.engine.worker import Worker
from outlive.log.fold import Fold, fold
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.operation import IN_DOUBT
from outlive.model.run import RunRow
from outlive.secret.port import ChainSecrets
from outlive.store.keeping import Kept
from outlive.store.port import Append
from outlive.testing.faults import Died, Fault
from outlive.testing.ground import File, Ground
from outlive.testing.world import Approver, KeptSecrets, World
from tests.gate.case import Case, How, Stand
from tests.gate.releases import Release
from tests.gate.witness import Witness, done

RUN = RunId("case")
SECRETS = {"bank/token": "t0p-s3cret-c4nary"}
# Runs that were recorded with older releases of frameworks.
OLDER = Path(__file__).parent / "older"
_DIFFERS = re.compile(r"the log has (.*?)(?: \(entry (\d+)\))? here, the code asks for (.*?)(?: at (\S+:\d+))?$", re.S)
# A run that has not come to anything by then stands still.
_MOST = 40


@dataclass
class Lived:
    """What became of a run in the hands of the new release."""

    how: How
    row: RunRow
    entry: int = -1
    has: str = ""
    asks: str = ""
    choices: tuple[str, ...] = ()
    executed: list[str] = field(default_factory=list)
    """Bodies, up to where it stopped first."""
    repeated: list[str] = field(default_factory=list)
    """Calls that had their outcome, and were executed again, at whatever time."""
    adopted: list[str] = field(default_factory=list)
    after: str = ""
    """How it ended, or stands, after all that."""
    log: list[str] = field(default_factory=list)
    """Its log as people read it."""

    @property
    def told(self) -> str:
        """In one line, for a table."""
        where = f" at entry {self.entry}: {self.has} / {self.asks}" if self.how == "diverges" else ""
        ways = f"; adopted: {', '.join(self.adopted)}" if self.adopted else ""
        return f"{self.how}{where}{ways}; {self.after or self.row.status}"


class Stage(World[object]):
    """A store, and the workers of both releases one after the other."""

    def __init__(
        self, ground: Ground, release: Release, deps: Callable[[Release], object], witness: Witness
    ) -> None:  # fmt: skip
        super().__init__(release.registry, deps(release), ground, secrets=KeptSecrets(dict(SECRETS), ChainSecrets([])))
        self.release, self.witness, self.old, self._deps = release, witness, release.registry, deps
        self.settings = replace(Settings(lease=self.settings.lease), build="old")
        self._dies_after, self._dies_in, self._left = "", "", 0
        witness.after = self._body

    # ---- the old release

    async def drive(self, stand: Stand, input: object, agent: str) -> None:
        """Let the old release do its part, as the case says."""
        self._dies_after, self._dies_in, self._left = stand.dies_after, stand.dies_in, stand.nth
        dies, moves = bool(stand.dies_after or stand.dies_in or stand.last), stand.moves
        decide: Approver = lambda _: "reject" if stand.decided == "reject" else "approve"  # noqa: E731 - it is one
        self.approver = decide if dies or moves else None
        await self.begin(input, agent)
        while stand.begun:
            await (self.mortal() if dies and not stand.found else self.work())
            row = await self.row(RUN)
            if self.deaths and (not stand.found or row.status == "blocked"):
                break
            if not dies and not moves:
                break
            moves -= 1
            assert not row.ended and await self.moves(), (
                f"{row.status} {row.reason} {row.detail}: it does not come to it"
            )
        if stand.decided and self.approver is None:
            self.approver = decide
            assert await self._decide(), "nobody is asked"

    async def take_in(self, file: str) -> None:
        """The run comes from another store, and somebody lets it go on."""
        lines = (OLDER / file).read_bytes().splitlines(keepends=True)
        await carry.take_in(cast(Kept, self.store), lines, DEFAULT_TENANT)
        await Control(self.store, self.clock, Owner("person")).resume(await self.row(RUN), who="ada", why="it is here")

    async def begin(self, input: object, agent: str) -> None:
        """Start the run."""
        await self.client.start(cast("Agent[object, object]", self.registry.agent(agent)), input, id=RUN)

    async def mortal(self) -> None:
        """Work until there is nothing to do, or the worker has died: nobody follows it."""
        store, worker = self.process, self._worker()
        while not store.died:
            found = 0
            with suppress(Died):
                found = await worker.claim()
            await worker.idle()
            if not found:
                break
        self.deaths += bool(store.died)

    def _worker(self) -> Worker:
        assert self._process is not None
        return self._process[1]

    def _committed(self, append: Append) -> None:
        super()._committed(append)
        for draft in append.drafts:
            said = f"{draft.kind} {json.loads(draft.body).get('name', '')}".strip()
            if self._dies_after and self._dies_after in (said, draft.kind):
                self._died(f"after {said}")

    def _body(self, name: str) -> None:
        if name == self._dies_in:
            self._died(f"in {name}")

    def _died(self, how: str) -> None:
        self._left -= 1
        if not self._left:
            self.process.died = how

    # ---- what happens outside

    async def moves(self) -> bool:
        """Somebody says what the run waits for, or the time comes that it waits for; whether anything could happen."""
        row = await self.row(RUN)
        if await self._decide() or await self._said(row) or await self._resolved(row):
            return True
        step = await self.next_due()
        if step is None:
            return False
        self.clock.advance(timedelta(milliseconds=step))
        return True

    async def _said(self, row: RunRow) -> bool:
        answers, messages = self.release.says("ANSWERS"), self.release.says("MESSAGES")
        for question in await mail.questions(self.store, DEFAULT_TENANT, RUN):
            if not question.answered_by and question.text in answers:
                body = answers[question.text]
                return await mail.answer(self.store, DEFAULT_TENANT, RUN, question.id, body, "ada", self.clock.now())
        state = await self.folded()
        for call in list(state.keys.values()):
            topic = call.name.removeprefix("receive:")
            if call.kind == "wait" and not call.done and call.name != topic and topic in messages:
                key = f"{topic}-{len(state.keys)}-{row.head.seq}"
                body, now = messages[topic], self.clock.now()
                return await mail.send(self.store, DEFAULT_TENANT, RUN, topic, body, key, now)
        return False

    async def _resolved(self, row: RunRow) -> bool:
        """Somebody has found out about what is in doubt: it happened."""
        if row.status != "blocked" or row.reason != "operation in doubt":
            return False
        for one in await self.store.operations(DEFAULT_TENANT, RUN):
            if one.status in IN_DOUBT:
                control, text = Control(self.store, self.clock, Owner("person")), self.release.says("OUTCOMES")
                # What the new release has no tool for, a person decides with the old one's command line.
                registry = self.registry if self._knows(row, one.tool) else self.old
                await decide.resolve(
                    control, registry, DEFAULT_TENANT, RUN, one.id, "happened", who="ada", why="it is in the books",
                    outcome=text.get(one.tool, '"found by hand"'),
                )  # fmt: skip
                return True
        return False

    def _knows(self, row: RunRow, tool: str) -> bool:
        agent = self.registry.agents.get(row.agent)
        return self.registry.tool(agent.renamed.get(tool, tool) if agent is not None else tool) is not None

    async def folded(self) -> Fold:
        """What the log says that replay sees."""
        return fold(await self.store.window(DEFAULT_TENANT, RUN))

    # ---- the new release

    async def take_over(self, release: Release, case: Case) -> Lived:
        """Workers of the new release have the run from here on."""
        self._dies_after = self._dies_in = ""
        before, head = done(await self.folded()), (await self.row(RUN)).head
        self.release, self.registry, self.deps = release, release.registry, self._deps(release)
        self.settings = replace(self.settings, build="new")
        self.approver = lambda _: "approve"
        self.witness.begin()
        self.serve()
        row = await self.until_it_stands()
        lived = Lived(_how(row, await self._claimed(head.seq)), row, executed=list(self.witness.names))
        if lived.how == "diverges":
            lived.entry, lived.has, lived.asks = _difference(row.detail)
            lived.choices = tuple(one.how for one in choices(await self.folded(), RUN))
            await self._adopt(case, lived)
        after = await self.row(RUN)
        lived.log = await self.lines(RUN)
        lived.after = f"{after.status} {after.reason} {after.detail}".strip()
        lived.repeated = [
            name for name, place in zip(self.witness.names, self.witness.places, strict=True) if place in before
        ]
        return lived

    async def _claimed(self, since: int) -> bool:
        """Whether a worker has called the agent since then; to look after what is left of another is not that."""
        entries = await self.store.entries(DEFAULT_TENANT, RUN, after=since - 1)
        return any(one.kind == "claimed" and json.loads(one.body)["why"] != "control" for one in entries)

    async def _adopt(self, case: Case, lived: Lived) -> None:
        for how in case.expected.adopt:
            row = await self.row(RUN)
            if row.reason != "diverged":
                return
            control = Control(self.store, self.clock, Owner("person"))
            await control.adopt(row, Acceptance(how, "ada", "the change was looked at"))
            lived.adopted.append(how)
            await self.until_it_stands()

    async def until_it_stands(self) -> RunRow:
        """Work, and let people say what it waits for, until it has ended, or nothing that anybody says helps."""
        for _ in range(_MOST):
            await self.work()
            row = await self.row(RUN)
            if row.ended or (row.status == "blocked" and row.reason != "operation in doubt"):
                return row
            if not await self.moves():
                return row
        return await self.row(RUN)


def _how(row: RunRow, claimed: bool) -> How:
    if row.status == "succeeded":
        return "goes on"
    if not claimed:
        return "unclaimed"
    if row.ended:
        return "fails"
    return "diverges" if row.reason == "diverged" else "blocked"


def _difference(detail: str) -> tuple[int, str, str]:
    """Entry, what the log has, and what the code asks for, as the report says them."""
    found = _DIFFERS.match(detail)
    return (int(found[2] or -1), found[1], found[3]) if found is not None else (-1, "", detail)


# What tools of a release depend on, and what the run is given.
Outside = tuple[Callable[[Release], object], object]


@asynccontextmanager
async def staged(
    case: Case, old: Release, outside: Outside, ground: Callable[[], Ground], witness: Witness
) -> AsyncIterator[Stage]:
    """A run of the old release that stands where the case says."""
    deps, given = outside
    faults: list[Fault] = []
    if case.stand.last:
        async with ended(old, outside, ground, witness) as stage:
            faults.append(Fault("die", stage.process.counts["append"], "append"))
    there = ground()
    if case.stand.recorded and isinstance(there, File):
        there = File(there._path, threads=True)  # as runs are imported
    stage = Stage(there, old, deps, witness)
    await stage.open(*faults)
    try:
        if case.stand.recorded:
            await stage.take_in(case.stand.recorded)
        else:
            await stage.drive(case.stand, given, old.agent)
        yield stage
    finally:
        await stage.close()


@asynccontextmanager
async def ended(old: Release, outside: Outside, ground: Callable[[], Ground], witness: Witness) -> AsyncIterator[Stage]:
    """The same run as it is when its old release has brought it to its end, undisturbed."""
    deps, given = outside
    stage = Stage(ground(), old, deps, witness)
    await stage.open()
    try:
        await stage.begin(given, old.agent)
        stage.approver = lambda _: "approve"
        row = await stage.until_it_stands()
        assert row.ended, f"{row.status} {row.reason} {row.detail}"
        yield stage
    finally:
        await stage.close()
