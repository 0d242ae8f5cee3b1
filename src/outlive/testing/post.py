"""What the world outside says to the run of a sweep, and when: messages and answers, each of them said twice.

Senders know nothing of workers: they say it at their time, whether a worker lives or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from outlive.app import mail as mails
from outlive.app.complete import complete
from outlive.app.registry import Registry
from outlive.engine.control import Control
from outlive.engine.worker import Worker
from outlive.model.errors import Refused, UnknownQuestion
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.operation import DidNotHappen, Happened
from outlive.store.port import Look, Store
from outlive.testing.clock import ManualClock


@dataclass(frozen=True, slots=True)
class Mail:
    """A message on `topic` with the sender's `key`, or without a topic the answer to the question of that text.

    With `completes` it is the outcome of the last operation of that tool, or a `DidNotHappen`, under `key`, and is not
    said before there is one. It is said at `at`: so long after the start, or before call number `at` of the workers to
    their store, while they drive the run. What was not said by then is said when nothing else happens any more, also
    when the run has ended.
    """

    body: object
    topic: str = ""
    key: str = ""
    question: str = ""
    completes: str = ""
    at: timedelta | int = timedelta(0)

    def __post_init__(self) -> None:
        keyed = bool(self.topic or self.completes)
        if sum(map(bool, (self.topic, self.question, self.completes))) != 1 or (keyed and not self.key):
            why = "it has a topic and a key, the text of a question, or the tool that it completes and a key"
            raise Refused(what=str(self), why=why)


class Post:
    """What is still to be said to one run."""

    def __init__(
        self, store: Store, clock: ManualClock, run: RunId, mail: Sequence[Mail], registry: Registry | None = None
    ) -> None:
        self._store, self._clock, self._run, self._registry = store, clock, run, registry or Registry()
        self._began, self._calls = clock.now(), 0
        self._left = list(mail)

    def next_due(self) -> int | None:
        """When, in milliseconds of the clock, the next one is said by time; None if none is to come."""
        due = [self._moment(one) for one in self._left]
        return min((at for at in due if at is not None and at > self._clock.now()), default=None)

    async def by_time(self) -> None:
        """Say what is due."""
        for one in list(self._left):
            at = self._moment(one)
            if at is not None and at <= self._clock.now():
                await self._say(one)

    async def by_call(self, worker: Worker) -> None:
        """The worker is about to call its store: say what belongs here, and let the run know as a look would."""
        self._calls += 1
        said = False
        for one in list(self._left):
            if not isinstance(one.at, timedelta) and one.at <= self._calls:
                said |= await self._say(one)
        if said:
            there = frozenset([(DEFAULT_TENANT, self._run)])
            worker.pass_on(Look(self._clock.now(), claimable=False, unread=there))

    async def rest(self) -> bool:
        """Say all that is left, and whether anything was. Answers to what was never asked are dropped."""
        return any([await self._say(one) for one in list(self._left)])

    def _moment(self, one: Mail) -> int | None:
        return self._began + one.at // timedelta(milliseconds=1) if isinstance(one.at, timedelta) else None

    async def _say(self, one: Mail) -> bool:
        if one.completes:
            return await self._complete(one)
        body, now = mails.written(one.body, "what the test says"), self._clock.now()
        if one.topic:
            self._left.remove(one)
            # In doubt a sender says it again, and a second thought under the same key changes nothing.
            for said in (body, '"what nobody may receive"'):
                await mails.send(self._store, DEFAULT_TENANT, self._run, one.topic, said, one.key, now)
            return True
        try:
            question = await mails.asked(self._store, DEFAULT_TENANT, self._run, one.question)
        except UnknownQuestion:
            return False
        self._left.remove(one)
        for said, who in ((body, "ada"), ('"what nobody may be told"', "bea")):
            await mails.answer(self._store, DEFAULT_TENANT, self._run, question.id, said, who, now)
        return True

    async def _complete(self, one: Mail) -> bool:
        rows = await self._store.operations(DEFAULT_TENANT, self._run)
        last = next((row for row in reversed(rows) if row.tool == one.completes), None)
        if last is None or one not in self._left:
            return False
        self._left.remove(one)
        told = one.body if isinstance(one.body, DidNotHappen) else Happened(one.body)
        control = Control(self._store, self._clock, Owner("the other side"))
        for said in (told, DidNotHappen()):
            await complete(control, self._registry, DEFAULT_TENANT, last.id, said, key=one.key)
        return True
