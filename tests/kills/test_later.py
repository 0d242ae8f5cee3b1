"""SIGKILL right after an operation has become *later*: its outcome is told while no worker lives, and it acts once."""

from pathlib import Path

from outlive import DidNotHappen, Happened
from tests.kills.agents import app
from tests.kills.scene import BOTH, Scene, kill, scene
from tests.kills.waiting import until


async def taken_on(here: Scene, run: str) -> str:
    """The id of its operation, as soon as its outcome is to come."""

    async def later() -> bool:
        return [one.status for one in await here.operations(run)] == ["later"]

    await until(later, f"the outcome of {run} is to come")
    return (await here.operation(run)).id


@BOTH
async def test_told_while_no_worker_lives(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        first = here.worker()
        run = await here.pay("taken_on", "A")
        id = await taken_on(here, "A")
        kill(first)
        assert here.counted() == {"A": 1}
        for _ in range(2):
            await app.complete(id, Happened("ch_000001"), key="evt-1")
        assert (await here.operation("A")).status == "later"

        here.worker()
        assert await here.result(run) == ["ch_000001"]
        operation = await here.operation("A")
        assert (operation.status, operation.how, operation.attempt) == ("succeeded", "completion", 1)
        assert here.counted() == {"A": 1}
        assert [line.data["verdict"] for line in await here.log("A") if line.kind == "completion"] == ["settles"]


@BOTH
async def test_told_that_it_did_not_happen_while_no_worker_lives(tmp_path: Path, store: str) -> None:
    """What the bank had taken on it gives up: it is sent once more, under the same key."""
    async with scene(tmp_path, store=store) as here:
        first = here.worker()
        run = await here.pay("taken_on", "A")
        id = await taken_on(here, "A")
        kill(first)
        await app.complete(id, DidNotHappen(), key="evt-1", attempt=1)

        second = here.worker()

        async def again() -> bool:
            return (await here.operation("A")).attempt == 2 and (await here.operation("A")).status == "later"

        await until(again, "it is taken on once more")
        kill(second)
        said = here.outlive(
            "complete", id, "--happened", '"ch_000002"', "--key", "evt-2", "--who", "dana", "--why", "the books"
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
        assert "told; it is later" in said.stderr
        here.worker()
        assert await here.result(run) == ["ch_000002"]
        assert [one["key"] for one in here.bank.requests()] == [(await here.operation("A")).key] * 2
