"""Takes books back: a tool without an answer that can be looked up, which says by itself that nothing was sent."""

from __future__ import annotations

from outlive import NotSent, Operation, Run
from outlive.errors import StepFailed
from tests.typing.shop.app import app
from tests.typing.shop.deps import Deps


@app.tool()
async def collect(op: Operation[Deps], parcel: str) -> bool:
    token = await op.secret("carrier/token")
    op.raise_if_lost()
    if not token:
        raise NotSent("no token, so nobody was asked")
    return op.attempt == 1 and parcel not in op.notes


def weigh(parcel: str) -> float:
    return len(parcel) / 10


@app.agent()
async def take_back(run: Run[Deps], parcel: str) -> float:
    try:
        weight = await run.step(weigh, parcel)
    except StepFailed as failed:
        run.log.info("%s: %s", failed.type, failed.message)
        weight = 0.0
    collected: bool = await run.call(collect, parcel=parcel)
    return weight if collected else 0.0
