"""A worker frozen by SIGSTOP while another takes its run over, then woken: nothing that it writes is accepted."""

import signal
from pathlib import Path

import pytest

from outlive.app.inspect import Line
from tests.kills.scene import BOTH, SQLITE_FIRST, Scene, Worker, scene
from tests.kills.waiting import until


async def taken_over(here: Scene, run: str, by: Worker) -> int:
    """The epoch of the takeover."""
    owner = await here.owner(by)

    async def look() -> int | None:
        claims = [line for line in await here.log(run) if line.kind == "claimed"]
        return next((line.epoch for line in claims if line.data["owner"] == owner), None)

    return await until(look, f"run {run} is taken over")


async def evidence(here: Scene, run: str) -> Line:
    """The zombie's answer, once it has come into the log."""

    async def look() -> Line | None:
        return next((line for line in await here.log(run) if line.kind == "evidence"), None)

    return await until(look, f"evidence in the log of {run}")


def wake(zombie: Worker) -> None:
    zombie.send_signal(signal.SIGCONT)


@BOTH
async def test_frozen_while_the_bank_holds_its_request(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        here.bank.rule("hold", when="after", invoice="A")
        zombie = here.worker()
        run = await here.pay("patient", "A", "B")
        here.bank.wait_held(1, timeout=90)
        await here.freeze(zombie)
        other = here.worker()
        epoch = await taken_over(here, run.id, other)
        charges = await here.result(run)
        here.bank.release()
        wake(zombie)
        said = await evidence(here, run.id)
        assert (said.data["epoch"], said.data["verdict"]) == (epoch - 1, "confirms")
        assert charges == ["ch_000001", "ch_000002"]
        assert here.counted() == {"A": 1, "B": 1}
        assert (await here.operation("A")).duplicates == 0
        # It is as good as new for other runs.
        other.terminate()
        assert await here.exited(other) == 0
        assert await here.result(await here.pay("looked_up", "C")) == ["ch_000003"]


@SQLITE_FIRST
async def test_frozen_between_guard_and_write_with_a_bank_that_dedupes(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store, dedupe=True) as here:
        here.arm("stop after guard")
        zombie = here.worker()
        run = await here.pay("deduped", "A")
        await here.stopped(zombie)
        other = here.worker()
        await taken_over(here, run.id, other)
        assert await here.result(run) == ["ch_000001"]
        wake(zombie)
        assert (await evidence(here, run.id)).data["verdict"] in ("confirms", "no news")
        assert here.counted() == {"A": 1}
        assert (await here.operation("A")).duplicates == 0
        assert [one["answer"] for one in here.bank.requests()] == [201, 201]


@pytest.mark.parametrize(
    ("point", "store"),
    [
        ("stop before guard", "sqlite"),
        ("stop after guard", "postgres"),
        pytest.param("stop before guard", "postgres", marks=pytest.mark.long),
        pytest.param("stop after guard", "sqlite", marks=pytest.mark.long),
    ],
    indirect=["store"],
)
async def test_frozen_before_the_write_with_a_bank_that_counts_twice(tmp_path: Path, point: str, store: str) -> None:
    """The guard stops a late send. Frozen behind it, the zombie does send: two effects, and the run says so."""
    async with scene(tmp_path, store=store) as here:
        here.arm(point)
        here.bank.rule("hold", when="after", invoice="B")
        zombie = here.worker()
        run = await here.pay("stopping", "A", "B", others="patient")
        await here.stopped(zombie)
        other = here.worker()
        await taken_over(here, run.id, other)
        here.bank.wait_held(1, timeout=90)  # A was sent again and recorded; B is on its way
        wake(zombie)
        if point == "stop before guard":
            here.bank.release()
            assert len(await here.result(run)) == 2
            zombie.terminate()  # it drains, so whatever it would still do is done when it has exited
            assert await here.exited(zombie) == 0
            assert here.counted() == {"A": 1, "B": 1}
            assert (await here.operation("A")).duplicates == 0
            return
        assert (await evidence(here, run.id)).data["verdict"] == "duplicate"
        here.bank.release()
        row = await here.status(run.id, "blocked")
        operation = await here.operation("A")
        assert (row.reason, operation.status, operation.duplicates) == ("duplicate effect", "succeeded", 1)
        assert operation.id in row.detail
        assert here.counted() == {"A": 2, "B": 1}
        assert "duplicate effect" in here.outlive("ps").stdout
