"""The people: they pass on what the hotel tells, look into books that no program may ask, and talk to the airline.

What they decide they say on the command line, as anybody could from another terminal.
"""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from examples.dunning.fleet import ROOT
from examples.dunning.person import Word
from examples.travel.app import app
from examples.travel.audit import ORDERS, PROVIDER
from examples.travel.providers import Line, Providers
from outlive import Happened
from outlive.errors import OutliveError
from outlive.model.ids import DEFAULT_TENANT
from outlive.model.operation import IN_DOUBT, OperationRow
from outlive.model.run import RunRow

WHO = "mara@office"
GIVES_NUMBER = {*ORDERS, "cancel_hotel"}


class Office:
    """Looks after the runs that stand still. `unlisted` is what `outlive show` did not say of a run that did."""

    def __init__(self, providers: Providers, environment: dict[str, str], say: Callable[[str], None]) -> None:
        self.decisions: Counter[str] = Counter()
        self.unlisted: list[str] = []
        self._providers, self._environment, self._say = providers, environment, say
        self._told: Counter[str] = Counter()
        self._shown: set[tuple[str, str]] = set()

    async def look(self, rows: Sequence[RunRow]) -> None:
        """Pass on what is new; decide about each run that is blocked."""
        await self._pass_on()
        async with asyncio.TaskGroup() as group:
            for row in rows:
                if row.status == "blocked":
                    group.create_task(self._decide(row))

    async def _pass_on(self) -> None:
        """As a webhook would; everything is told twice, as webhooks do."""
        for news in await self._providers.news():
            if self._told[news.event] < 2:
                try:
                    await app.complete(news.operation, Happened(news.number), key=news.event)
                except OutliveError as error:
                    self._say(f"{news.event} could not be told, and will be again: {error}")
                else:
                    self._told[news.event] += 1

    async def _decide(self, row: RunRow) -> None:
        store = app.opened
        if row.reason == "operation in doubt":
            runs = [row.id] if row.rolls_back is None else [row.id, row.rolls_back]
            doubts = [
                one for run in runs for one in await store.operations(DEFAULT_TENANT, run) if one.status in IN_DOUBT
            ]
            for operation in doubts:
                await self._is_shown(row, operation.id)
                await self._find_out(operation, await store.now())
            return
        if row.reason == "compensation failed" and row.rolls_back is not None:
            self._say(f"run {row.id} is blocked: {row.detail}")
            await self._is_shown(row, "still to undo")
            await self._providers.persuade(row.rolls_back)
            await self._decided(row.reason, Word(["retry", row.id, "--who", WHO, "--why", "the airline gives it back"]))
            return
        await self._decided(row.reason, Word(["retry", row.id, "--who", WHO, "--why", "it is looked after"]))

    async def _is_shown(self, row: RunRow, what: str) -> None:
        """Whether who looks at the run is told of it, once for each run and doubt."""
        if (row.id, what) not in self._shown:
            shown = await asyncio.to_thread(outlive, self._environment, "show", row.id)
            # What was blocked may have been settled meanwhile, by what the hotel tells.
            now = await app.opened.run(DEFAULT_TENANT, row.id)
            if what in shown:
                self._shown.add((row.id, what))
            elif now is not None and now.status == "blocked":
                self.unlisted.append(f"{what} of run {row.id}: {shown}")

    async def _find_out(self, operation: OperationRow, now: int) -> None:
        """From the books; what is not there yet may come until no request can be on its way."""
        provider = PROVIDER[operation.tool]
        line = next((one for one in await self._providers.ledger(provider) if one.key == operation.key), None)
        if line is not None or now >= operation.not_before:
            await self._decided("operation in doubt", decide(operation, line))

    async def _decided(self, reason: str, word: Word) -> None:
        self._say(f"$ {word}")
        accepted, answer = await asyncio.to_thread(word.say, self._environment)
        self.decisions[reason] += accepted
        self._say(answer)


def decide(operation: OperationRow, line: Line | None) -> Word:
    """It is in the books, or it is not."""
    base, who = ["resolve", operation.run, operation.id], ["--who", WHO]
    if line is None:
        return Word([*base, "did-not-happen", *who, "--why", "not in the books"])
    outcome = ["--outcome", json.dumps(line.number)] if operation.tool in GIVES_NUMBER else []
    return Word([*base, "happened", *outcome, *who, "--why", f"the books have {line.number}"])


def outlive(environment: dict[str, str], *arguments: str) -> str:
    """What the command says."""
    done = subprocess.run(
        [sys.executable, "-m", "outlive", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr
