"""Code of a framework in a run: what it asks for when it should not is an error, and never a wait without an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path

import pytest
from pydantic import JsonValue

from outlive import Operation, Outlive, Run
from outlive.engine.definition import ToolPolicy
from outlive.engine.guest import Brought, Guest
from outlive.errors import RunCancelled, RunFailed
from outlive.log.codec import Signature
from outlive.testing import lab

Work = Callable[[Guest], Awaitable[str]]

work: ContextVar[Work] = ContextVar("work")


async def _shape(op: object, *, what: str) -> JsonValue:
    raise NotImplementedError


def brought(name: str) -> Brought:
    return Brought(name, ToolPolicy("read"), Signature.of(_shape, skip=1, where=name), _shape)


SAY = brought("say")


async def say(guest: Guest, what: str, lane: str = "", body: Callable[[], Awaitable[object]] | None = None) -> object:
    async def doing(given: dict[str, object]) -> object:
        return given["what"] if body is None else await body()

    return await guest.call(SAY, {"what": what}, body=doing, lane=lane)


app: Outlive = Outlive()


async def hosted(run: Run, what: str) -> str:
    """Hosts what the test wants."""
    guest = Guest(run)
    return await guest.host(_of(guest))


hosting = app.agent()(hosted)


async def _of(guest: Guest) -> str:
    return await work.get()(guest)


async def comes_to(given: Work) -> str:
    """What a run that hosts it comes to. AssertionError where nothing moves any more."""
    work.set(given)
    async with lab(app, deps=None) as t:
        working = asyncio.ensure_future(t.run(hosting, "begin"))
        for _ in range(2000):  # turns of the loop, and of the thread of the store, not time
            if working.done():
                return await working
            await asyncio.to_thread(int)
        working.cancel()
        raise AssertionError("nothing moves any more")


async def test_a_call_inside_a_call_is_refused() -> None:
    async def nested(guest: Guest) -> str:
        async def again() -> object:
            return await say(guest, "inner")

        return str(await say(guest, "outer", body=again))

    with pytest.raises(RunFailed, match="a call of say inside the call of say is refused"):
        await comes_to(nested)


@pytest.mark.parametrize("lane", ["one", "two"])
async def test_a_call_inside_a_call_of_a_lane_is_refused(lane: str) -> None:
    """In its own lane it would wait for itself; in another one it would be in nobody's order."""

    async def nested(guest: Guest) -> str:
        async def again() -> object:
            return await say(guest, "inner", lane)

        async with guest.lanes(["one", "two"]):
            return str(await say(guest, "outer", "one", body=again))

    with pytest.raises(RunFailed, match="a call of say inside the call of say is refused"):
        await comes_to(nested)


async def test_lanes_that_cannot_be_opened_are_an_error_of_who_asks() -> None:
    async def odd(guest: Guest) -> str:
        async with guest.lanes(["\ud800", "b"]):
            return str(await say(guest, "never", "\ud800"))

    with pytest.raises(RunFailed, match="a lone surrogate is no character"):
        await comes_to(odd)


async def test_who_asks_again_when_it_is_cancelled_is_cancelled_again(tmp_path: Path) -> None:
    """A framework whose clean-up makes a call does not keep a run that is cancelled from its end."""
    begun, told = asyncio.Event(), list[str]()

    async def stubborn(guest: Guest) -> str:
        async def wait() -> object:
            begun.set()
            return await asyncio.Event().wait()

        try:
            await say(guest, "begin", body=wait)
        finally:
            told.append("cancelled")
            try:
                await say(guest, "clean up")
            except asyncio.CancelledError:
                told.append("again")
                raise
        return "never"

    work.set(stubborn)
    alone: Outlive = Outlive(f"sqlite:///{tmp_path}/guest.db")
    registered = alone.agent()(hosted)
    async with alone, alone.worker():
        run = await alone.start(registered, "begin")
        await begun.wait()
        await run.cancel(who="lena", why="enough")
        with pytest.raises(RunCancelled):
            await run.result()
    assert told == ["cancelled", "again"]


ASK = Brought("ask", ToolPolicy("idempotent", harmless=True), Signature.of(_shape, skip=1, where="ask"), _shape)
asking: Outlive = Outlive()
asking.registry.add_tool(ASK)


@asking.tool()
async def untell(op: Operation) -> str:
    """Take it back."""
    return "taken back"


@asking.tool(compensate=untell)
async def tell(op: Operation, what: str) -> str:
    """Tell somebody."""
    return f"told {what}"


@asking.agent()
async def asks(run: Run, what: str) -> str:
    """Asks twice, and tells somebody."""
    guest = Guest(run)
    asked = [str(await guest.host(_ask(guest, what))) for what in ("one", "two")]
    return await run.call(tell, " and ".join(asked))


async def _ask(guest: Guest, what: str) -> object:
    async def answer(given: dict[str, object]) -> object:
        return given["what"]

    return await guest.call(ASK, {"what": what}, body=answer)


async def test_what_is_harmless_is_done_again_by_a_fork_and_all_else_is_held() -> None:
    async with lab(asking, deps=None) as t:
        run = await t.start(asks, "begin")
        assert await run.result() == "told one and two"
        fork = await run.fork(who="lena", at=0)
        await t.advance(seconds=1)
        assert [(one.tool, one.status) for one in await t.operations(fork)] == [
            ("ask", "succeeded"), ("ask", "succeeded"), ("tell", "held"),
        ]  # fmt: skip
        keys = [one.key for one in (*await t.operations(run), *await t.operations(fork)) if one.tool == "ask"]
        assert len(set(keys)) == 4, "the other side would answer a fork with what its parent has asked"


async def test_a_rollback_has_nothing_to_undo_of_what_is_harmless() -> None:
    async with lab(asking, deps=None) as t:
        run = await t.start(asks, "begin")
        await run.result()
        told = [one.id for one in await t.operations(run) if one.tool == "tell"]
        undone = await (await run.rollback(who="lena", why="nobody should know")).result()
    assert (undone.compensated, undone.left) == (told, [])
