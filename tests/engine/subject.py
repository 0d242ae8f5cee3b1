"""One agent whose body a test chooses, and tools of every kind whose behaviour a test chooses too."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pydantic import BaseModel

from outlive import DidNotHappen, Happened, Operation, Outlive, Retry, Run, Unclear
from outlive.engine.worker import Worker
from tests.engine.rig import Rig

Body = Callable[[Run[None]], Awaitable[object]]
Answer = Happened[str] | DidNotHappen | Unclear

RUN = "subject-1"
base: Outlive[None] = Outlive()


class Declined(Exception):
    """An outcome that tools here declare."""


class Behaviour:
    """What the agent and the tools do in the test that runs now."""

    def __init__(self) -> None:
        self.body: Body = _nothing
        self.tool: Callable[[Operation[None]], Awaitable[str]] = _did
        self.look_up: Callable[[Operation[None]], Awaitable[Answer]] = _unclear
        self.steps: list[str] = []
        self.blocking = threading.Event()


async def _nothing(run: Run[None]) -> object:
    return None


async def _did(op: Operation[None]) -> str:
    return f"did {op.arguments['what']}"


async def _unclear(op: Operation[None]) -> Answer:
    return Unclear("not now")


does = Behaviour()


def reset() -> None:
    """Forget what an earlier test wanted."""
    does.__dict__.update(vars(Behaviour()))


class State(BaseModel):
    """State of a loop of turns."""

    n: int = 0
    seen: list[str] = []


def add(x: int, y: int = 1) -> int:
    does.steps.append(f"add {x}")
    return x + y


async def double(x: int) -> int:
    does.steps.append(f"double {x}")
    return 2 * x


async def fails(message: str) -> int:
    does.steps.append("fails")
    raise ValueError(message)


async def look_up(op: Operation[None]) -> Answer:
    return await does.look_up(op)


@base.tool(effect="external", retry=Retry(attempts=3), raises=(Declined,), timeout=timedelta(seconds=20))
async def act(op: Operation[None], what: str) -> str:
    return await does.tool(op)


@base.tool(
    effect="external", reconcile=look_up, raises=(Declined,), retry=Retry(attempts=3),
    settle_after=timedelta(seconds=5), timeout=timedelta(seconds=20),
)  # fmt: skip
async def charge(op: Operation[None], what: str) -> str:
    return await does.tool(op)


@base.tool(effect="idempotent", retry=Retry(attempts=3), dedupes_for=timedelta(hours=1))
async def put(op: Operation[None], what: str) -> str:
    return await does.tool(op)


@base.tool(effect="read", retry=Retry(attempts=3))
async def look(op: Operation[None], what: str) -> str:
    return await does.tool(op)


@base.tool(effect="transactional", retry=Retry(attempts=3))
async def note_down(op: Operation[None], what: str) -> str:
    await op.connection.execute("create table if not exists notes (what text)")
    await op.connection.execute("insert into notes values (?)", (what,))
    return await does.tool(op)


@base.tool(effect="external")
def on_thread(op: Operation[None], what: str) -> str:
    does.blocking.wait(10)
    return f"did {what} on a thread"


@base.agent()
async def subject(run: Run[None], task: str) -> str:
    return str(await does.body(run))


async def begin(rig: Rig, body: Body, *, code: str = "first") -> Worker:
    """Start the run and give a worker of the build `code`; nothing is driven yet."""
    does.body = body
    app = rig.app(base)
    await app.start(subject, "task", id=RUN)
    return rig.worker(app, code=code)


async def carry_on(rig: Rig, body: Body, *, code: str = "second") -> Worker:
    """A worker of another build, whose agent does `body`."""
    does.body = body
    return rig.worker(rig.app(base), code=code)
