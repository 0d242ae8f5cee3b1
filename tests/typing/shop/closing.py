"""Closes the till: recorded time, chance and identity; an event; an agent without a result."""

from __future__ import annotations

from datetime import date, datetime
from uuid import UUID

from pydantic import BaseModel

from outlive import Run
from tests.typing.shop.app import app
from tests.typing.shop.deps import Deps


class Closed(BaseModel):
    slip: UUID
    at: datetime
    audited: bool


@app.agent()
async def close_till(run: Run[Deps], day: date) -> None:
    at: datetime = run.now()
    slip: UUID = run.uuid()
    chance: float = run.random()
    await run.emit("closed", Closed(slip=slip, at=at, audited=chance < 0.1))
    run.log.info("%s is closed, run %s of version %s", day, run.id, run.version)
