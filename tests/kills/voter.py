"""A process in which one person decides about approvals, each at a moment by the database's clock.

Started by a test with a store, a name, and a directory in which the plan comes to lie: what everybody does when. What
this person was told, and what the clock said before and after, is written beside it.
"""

import asyncio
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, TypeAdapter

from outlive.app.approvals import Approvals, approvals_in
from outlive.app.compose import open_store
from outlive.app.settings import Settings
from outlive.errors import OutliveError
from outlive.model.clock import SystemClock
from tests.kills.waiting import nap, until


class Turn(BaseModel):
    """About one approval: who does what, and when all of them do."""

    approval: str
    at: int
    acts: dict[str, Literal["approve", "reject"]]


class Told(BaseModel):
    """What came of it for one person: the status of the approval after their vote, or the error."""

    approval: str
    who: str
    word: str
    why: str
    before: int
    after: int


PLAN = TypeAdapter(list[Turn])
WORDS = TypeAdapter(list[Told])


async def decide(desk: Approvals, turn: Turn, who: str) -> tuple[str, str]:
    try:
        if turn.acts[who] == "approve":
            row = await desk.approve(turn.approval, who=who, role="finance")
        else:
            row = await desk.reject(turn.approval, who=who, role="finance", why=f"{who} does not want it")
        return row.status, row.why
    except OutliveError as error:
        return type(error).__name__, str(error)


async def vote(url: str, who: str, directory: Path) -> None:
    store = await open_store(Settings.load(None, store=url), SystemClock(), existing=True)
    try:
        desk = approvals_in(store, SystemClock(), "default", None, None)
        (directory / f"{who} is ready").touch()

        async def look() -> bool:
            return (directory / "plan").exists()

        await until(look, "there is a plan", within=60)
        said = list[Told]()
        for turn in PLAN.validate_json((directory / "plan").read_text()):
            if who not in turn.acts:
                continue
            while await store.now() < turn.at:
                nap()
            before = await store.now()
            word, why = await decide(desk, turn, who)
            after = await store.now()
            said.append(Told(approval=turn.approval, who=who, word=word, why=why, before=before, after=after))
        (directory / f"{who} was told").write_bytes(WORDS.dump_json(said))
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(vote(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
