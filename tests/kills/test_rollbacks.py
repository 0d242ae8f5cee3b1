"""SIGKILL in the middle of a rollback; the bank counts what was charged and what was given back."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlive import Handle
from outlive.engine.undoing import Undone
from tests.kills.scene import BOTH, PATIENCE, SQLITE_FIRST, Scene, Worker, kill, scene
from tests.kills.takers import Order, app, failing, selling

APP = "tests.kills.takers:app"
pytestmark = pytest.mark.timeout(300)


@asynccontextmanager
async def shop(directory: Path, store: str, **modes: bool) -> AsyncIterator[Scene]:
    """A scene with an application of its own beside."""
    async with scene(directory, store=store, dedupe=modes.get("dedupe", False)) as here:
        app.use(here.store)
        yield here


def worker(here: Scene) -> Worker:
    return here.process("outlive", "worker", APP)


async def sold(here: Scene, invoices: Sequence[str]) -> Handle[list[str]]:
    """A run that has charged all of them."""
    serving = worker(here)
    run = await app.start(selling, Order(invoices=list(invoices)), id="sale")
    await run.result(timeout=PATIENCE)
    kill(serving)
    return run


async def asked(run: Handle[list[str]]) -> Handle[Undone]:
    return await run.rollback(who="ada", why="withdrawn")


async def undone(here: Scene) -> dict[str, str]:
    """By invoice, the status of what was charged."""
    return {one.arguments.split('"')[3]: one.status for one in await here.operations("sale")}


@BOTH
async def test_killed_anywhere_in_a_rollback_each_charge_is_refunded_once(tmp_path: Path, store: str) -> None:
    """One worker after the other dies: before the refund acts, between refund and record, and once more there."""
    async with shop(tmp_path, store) as here:
        run = await sold(here, ["A", "B", "C"])
        here.bank.rule("hold", when="before", invoice="refund of C")
        here.bank.rule("hold", when="after", invoice="refund of B")
        back = await asked(run)
        first = worker(here)
        [held] = here.bank.wait_held(1, timeout=90)
        assert held["invoice"] == "refund of C", "the newest first"
        kill(first)
        here.bank.release(held["request"], then="drop")
        second = worker(here)
        [held] = here.bank.wait_held(1, timeout=60)
        assert held["invoice"] == "refund of B"
        kill(second)
        here.bank.release(held["request"])
        worker(here)
        result = await back.result(timeout=PATIENCE * 2)
        assert len(result.compensated) == 3 and result.left == []
        each = ["A", "B", "C", "refund of A", "refund of B", "refund of C"]
        assert here.counted() == dict.fromkeys(each, 1)
        assert set((await undone(here)).values()) == {"compensated"}
        assert sum(one["cents"] for one in here.bank.ledger()["effects"]) == 0
        assert "takeover" in {line.data.get("why") for line in await here.log(back.id)}


@SQLITE_FIRST
async def test_a_refund_that_the_bank_dedupes_is_sent_again_under_its_key(tmp_path: Path, store: str) -> None:
    async with shop(tmp_path, store, dedupe=True) as here:
        run = await sold(here, ["D1"])
        here.bank.rule("hold", when="after", invoice="refund of D1")
        back = await asked(run)
        first = worker(here)
        here.bank.wait_held(1, timeout=90)
        kill(first)
        worker(here)
        await back.result(timeout=PATIENCE)
        here.bank.release()
        keys = {one["key"] for one in here.bank.requests() if one["invoice"] == "refund of D1"}
        assert len(keys) == 1
        assert here.counted_now() == {"D1": 1, "refund of D1": 1}


@SQLITE_FIRST
async def test_a_refund_that_nobody_can_look_up_is_listed_in_doubt_and_holds_up_the_rest(
    tmp_path: Path, store: str
) -> None:
    async with shop(tmp_path, store) as here:
        run = await sold(here, ["A", "X1"])
        here.bank.rule("hold", when="after", invoice="refund of X1")
        back = await asked(run)
        first = worker(here)
        here.bank.wait_held(1, timeout=90)
        kill(first)
        here.bank.release()
        worker(here)
        row = await here.status(back.id, "blocked")
        [doubtful] = await here.operations(back.id)
        assert (row.reason, doubtful.status) == ("operation in doubt", "unknown")
        assert here.counted() == {"A": 1, "X1": 1, "refund of X1": 1}
        shown = here.outlive("show", back.id)
        assert doubtful.id in shown.stdout and "resolve" in shown.stdout, shown.stderr
        said = here.outlive("resolve", back.id, doubtful.id, "happened", "--why", "in the books", "-a", APP)
        assert said.returncode == 0, said.stderr
        await back.result(timeout=PATIENCE)
        assert here.counted() == {"A": 1, "X1": 1, "refund of X1": 1, "refund of A": 1}
        assert set((await undone(here)).values()) == {"compensated"}


@SQLITE_FIRST
async def test_the_failure_of_a_run_is_undone_although_its_workers_are_killed(tmp_path: Path, store: str) -> None:
    """The first dies in a charge, the second in a refund: charged and given back once each."""
    async with shop(tmp_path, store) as here:
        here.bank.rule("hold", when="after", invoice="B")
        here.bank.rule("hold", when="after", invoice="refund of B")
        await app.start(failing, Order(invoices=["A", "B"]), id="sale")
        first = worker(here)
        here.bank.wait_held(1, timeout=90)
        kill(first)
        here.bank.release()
        worker(here)
        assert (await here.status("sale", "blocked")).reason == "operation in doubt"
        [_, doubtful] = await here.operations("sale")
        said = here.outlive(
            "resolve", "sale", doubtful.id, "happened", "--outcome", '"ch_000002"', "--why", "seen", "-a", APP
        )
        assert said.returncode == 0, said.stderr
        here.bank.wait_held(1, timeout=60)
        kill(here.workers[-1])
        here.bank.release()
        worker(here)
        assert (await here.status("sale-rollback", "succeeded")).rolls_back == "sale"
        assert here.counted() == {"A": 1, "B": 1, "refund of A": 1, "refund of B": 1}
