"""Real workers through a bad deploy that is rolled back, and through code that stops their event loops."""

import json
import signal
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from outlive import Handle
from tests.kills.deploys import CHANGES, Change, Contract, app, charging, signing, sticking
from tests.kills.scene import POSTGRES_FIRST, SQLITE_FIRST, Scene, Worker, kill, scene
from tests.kills.waiting import until

# Six workers start one after the other, on a machine that may do much else.
PATIENCE_S = 120.0


async def _result(run: Handle[list[str]]) -> list[str]:
    return await run.result(timeout=timedelta(seconds=PATIENCE_S))


def _worker(here: Scene, release: str, **environment: str) -> Worker:
    said = {"OUTLIVE_BUILD": release, "RELEASE": release, **environment}
    return here.process("outlive", "worker", "tests.kills.deploys:app", **said)


async def _statuses(here: Scene, runs: list[Handle[list[str]]]) -> dict[str, tuple[str, str]]:
    rows = [await here.row(run.id) for run in runs]
    return {row.id: (row.status, row.reason) for row in rows}


async def _all_are(here: Scene, runs: list[Handle[list[str]]], wanted: str, reason: str = "") -> None:
    async def look() -> bool:
        found = await _statuses(here, runs)
        return all(status == wanted and (not reason or why == reason) for status, why in found.values())

    await until(look, f"all are {wanted} {reason}", within=PATIENCE_S)


async def _go(runs: Iterable[Handle[list[str]]]) -> None:
    for run in runs:
        await run.send("go", "now", key="go")


async def _ended_by(worker: Worker, here: Scene) -> None:
    worker.send_signal(signal.SIGTERM)
    assert await here.exited(worker) == 0


async def _diverged(here: Scene, run: str) -> set[str]:
    """The builds that have said that they cannot continue a run; also those that were forgiven."""
    told = [line.data for line in await here.log(run) if line.data.get("reason") == "diverged"]
    return {str(data["code"]) for data in told if "code" in data}


@SQLITE_FIRST
async def test_a_bad_rolling_deploy_that_is_rolled_back_ends_every_run_right(tmp_path: Path, store: str) -> None:
    """Nobody decides anything: old workers take what the bad ones leave, and rolling back takes up what was blocked."""
    async with scene(tmp_path, store=store, delay=0.5, delay_before=0.3, delay_ms=80, seed=7) as here:
        app.use(here.store)
        first, second = _worker(here, "old"), _worker(here, "old")
        for worker in (first, second):
            await here.owner(worker)  # from here on it drains when it is told to stop
        runs: dict[str, dict[Change, Handle[list[str]]]] = {}
        for group in ("early", "between", "killed", "late"):
            runs[group] = {
                change: await app.start(
                    signing, Contract(name=f"{group} {change}", changed=change), id=f"{group}-{change}"
                )
                for change in CHANGES
            }
        every = [run for group in runs.values() for run in group.values()]
        await _all_are(here, every, "waiting")

        # One of two is bad: what it cannot continue, the other one does.
        await _ended_by(first, here)
        first = _worker(here, "bad")
        await here.owner(first)
        await _go(runs["early"].values())
        for run in runs["early"].values():
            assert len(await _result(run)) == 3

        # Both are bad, the last old one dies with operations in flight: what has changed is blocked, the rest ends.
        await _go(runs["killed"].values())
        here.bank.wait(effects=len(every) + 2 * len(CHANGES) + 1, timeout=PATIENCE_S)
        kill(second)
        second = _worker(here, "bad")
        await here.owner(second)
        await _go(runs["between"].values())
        for group in ("between", "killed"):
            assert len(await _result(runs[group]["nothing"])) == 3
        broken = [run for change, run in runs["between"].items() if change != "nothing"]
        await _all_are(here, broken, "blocked", "diverged")
        for run in broken:
            assert await _diverged(here, run.id) == {"bad"}

        # Rolled back, one after the other.
        for worker in (first, second):
            await _ended_by(worker, here)
            _worker(here, "old")
        await _go(runs["late"].values())
        for run in every:
            assert len(await _result(run)) == 3, run.id
        expected = {f"{group} {change} {number}": 1 for group in runs for change in CHANGES for number in (1, 2, 3)}
        here.bank.wait(effects=len(expected), timeout=PATIENCE_S)
        assert here.counted() == expected
        for run in every:
            assert not {"retried", "resolution", "adopted"} & {line.kind for line in await here.log(run.id)}


@POSTGRES_FIRST
async def test_code_that_stops_the_event_loop_is_named_and_does_not_take_other_runs_with_it(
    tmp_path: Path, store: str
) -> None:
    async with scene(tmp_path, store=store, delay=0.5, delay_before=0.5, delay_ms=150, seed=3) as here:
        app.use(here.store)
        stuck = await app.start(sticking, "stuck", id="stuck")
        others = [await app.start(charging, f"other {number}", id=f"other-{number}") for number in range(4)]
        limits = {"OUTLIVE_STALL_NOTICE": "300ms", "OUTLIVE_MAX_LAPSES": "2"}
        first = _worker(here, "one", **limits, OUTLIVE_STALL_LIMIT="600s")
        owner = await here.owner(first)

        async def is_known() -> bool:
            [row] = [one for one in await here.store.workers(within_ms=3_600_000) if one.owner == owner]
            return row.stalled_at is not None and row.stalled_by == "stuck"

        # It keeps its leases, and everybody can see why nothing goes on.
        await until(is_known, "the store is told which run has stopped the worker", within=PATIENCE_S)
        found = json.loads(here.outlive("doctor", "--json").stdout)["findings"]
        assert {(one["trouble"], one["subject"]) for one in found} >= {
            ("stalled worker", owner),
            ("stalled run", "stuck"),
        }
        assert all("run stuck blocks it" in one["why"] for one in found if one["trouble"] == "stalled worker")
        assert "run stuck blocks it" in here.outlive("show", "stuck").stdout
        [shown] = [one for one in json.loads(here.outlive("ps", "--json").stdout) if one["id"] == "stuck"]
        assert "run stuck blocks it" in shown["stalled"]
        assert "stalled: its event loop" in here.outlive("ps").stdout
        said = (tmp_path / "workers.log").read_text()
        assert "run stuck blocks it; all stacks follow" in said
        assert "in wait_on_the_event_loop" in said
        kill(first)

        # Each worker that takes it is stopped by it, and exits; the second time the run is poison, and no other is.
        second = _worker(here, "one", **limits, OUTLIVE_STALL_LIMIT="1500ms")
        assert await here.exited(second) == 70
        _worker(here, "one", **limits, OUTLIVE_STALL_LIMIT="1500ms")
        row = await here.status("stuck", "blocked")
        assert row.reason == "poison"
        assert owner in row.detail.partition("its code has stopped the event loop of ")[2]
        for run in others:
            assert len(await _result(run)) == 3
        expected = {f"other {number} {part}": 1 for number in range(4) for part in (1, 2, 3)} | {"stuck 1": 1}
        assert here.counted() == expected
        assert await stuck.status() == "blocked"
