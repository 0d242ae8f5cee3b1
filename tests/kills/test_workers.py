"""Whole workers: many runs under random kills, a drain, and a loop that no longer turns."""

import signal
from pathlib import Path

from examples.dunning.killer import Dice
from outlive.store.postgres.connection import place_of
from tests.kills.scene import LEASE_S, POSTGRES_FIRST, SQLITE_FIRST, Scene, Worker, kill, scene
from tests.kills.waiting import epoch_ms
from tests.store.postgres_scene import raw

# The promise is lease + 1 s; a loaded machine takes its time to start and to schedule processes.
PATIENCE_S = 60.0


@POSTGRES_FIRST
async def test_twenty_runs_under_random_kills(tmp_path: Path, store: str) -> None:
    dice = Dice(11)
    async with scene(tmp_path, store=store, delay=0.5, delay_before=0.3, delay_ms=80, seed=11) as here:
        fleet = [here.worker("--concurrency", "20") for _ in range(2)]
        runs = [await here.pay("looked_up", f"{number}a", f"{number}b", f"{number}c") for number in range(20)]
        deaths: list[tuple[int, list[str]]] = []
        for number in range(1, 6):
            here.bank.wait(effects=10 * number - int(8 * dice.draw(f"moment {number}")), timeout=60)
            victim = fleet[int(2 * dice.draw(f"victim {number}"))]
            held = await _held(here, victim)
            deaths.append((epoch_ms(), held))
            kill(victim)
            fleet[fleet.index(victim)] = here.worker("--concurrency", "20")
        for run in runs:
            assert len(await here.result(run)) == 3
        here.bank.wait(effects=60)
        assert set(here.counted().values()) == {1}
        assert len(here.counted()) == 60
        gap = max([await _gap(here, at, run) for at, held in deaths for run in held], default=0.0)
        print(f"longest gap after a kill: {gap:.2f} s with a lease of {LEASE_S:g} s")
        assert gap < PATIENCE_S


async def _held(here: Scene, worker: Worker) -> list[str]:
    owners = {one.owner for one in await here.store.workers(within_ms=3_600_000) if one.pid == worker.pid}
    rows = [await here.row(f"{number}a") for number in range(20)]
    return [row.id for row in rows if row.owner in owners]


async def _gap(here: Scene, at: int, run: str) -> float:
    """Seconds from a moment to the next entry of a run."""
    return min((line.at - at for line in await here.log(run) if line.at >= at), default=0) / 1000


@SQLITE_FIRST
async def test_a_drain_waits_for_the_call_in_flight_and_gives_the_run_back(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        here.bank.rule("hold", when="after", invoice="A")
        first = here.worker()
        run = await here.pay("blind", "A", "B")
        here.bank.wait_held(1, timeout=90)
        first.terminate()
        here.bank.release()
        assert await here.exited(first) == 0
        row = await here.row("A")
        operation = await here.operation("A")
        assert (row.status, row.owner, operation.status, operation.how) == ("ready", None, "succeeded", "call")
        here.worker()
        assert len(await here.result(run)) == 2
        claims = [line.data["why"] for line in await here.log("A") if line.kind == "claimed"]
        assert claims == ["start", "resume"]
        assert here.counted() == {"A": 1, "B": 1}


@SQLITE_FIRST
async def test_a_stuck_event_loop_loses_its_runs(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        here.arm("stick")
        stuck = here.worker(OUTLIVE_STALL_LIMIT="1s")
        run = await here.pay("blind", "A")
        await here.reached("stick")
        other = here.worker()
        assert await here.exited(stuck) == 70
        assert len(await here.result(run)) == 1
        assert "takeover" in {line.data.get("why") for line in await here.log("A")}
        assert "the event loop has not turned" in (tmp_path / "workers.log").read_text()
        other.send_signal(signal.SIGTERM)
        assert await here.exited(other) == 0


@SQLITE_FIRST
async def test_no_byte_holds_the_secret(tmp_path: Path, store: str) -> None:
    """The scanner finds a planted secret, and not the one that a tool says wherever it can."""
    canary, planted = "correct-horse-1e7d4c", "planted-horse-9f2b7a"
    async with scene(tmp_path, store=store) as here:
        worker = here.worker(OUTLIVE_SECRET_BANK_TOKEN=canary)
        run = await here.pay("secretive", "A")
        assert await here.result(run) == ["ch_000001 with [secret bank/token]"]
        log = await here.log("A")
        assert "[secret bank/token]" in str([(line.data, line.payload) for line in log])
        await here.pay("looked_up", planted)
        await here.result(await here.pay("looked_up", "B"))
        # Not yet closed: the write-ahead log is still there to be searched.
        kept = {"rows"} if store else {"outlive.db", "outlive.db-wal"}
        assert {"ledger.jsonl", "workers.log", *kept} <= set(_holding(tmp_path, store, b""))
        assert "the token is [secret bank/token]" in (tmp_path / "workers.log").read_text()
        found = _holding(tmp_path, store, planted.encode())
        assert "ledger.jsonl" in found and kept & set(found)
        assert _holding(tmp_path, store, canary.encode()) == []
        worker.terminate()
        assert await here.exited(worker) == 0
        assert _holding(tmp_path, store, canary.encode()) == []
        assert here.counted() == {"A": 1, planted: 1, "B": 1}


def _holding(directory: Path, store: str, wanted: bytes) -> list[str]:
    """The files that hold these bytes, and *rows* if a row of the schema does."""
    kept = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    if store:
        kept["rows"] = _rows(store)
    return [name for name, held in kept.items() if wanted in held]


def _rows(store: str) -> bytes:
    """All rows of a schema, texts as they are."""
    schema, found = place_of(store).schema, b""
    with raw(store) as connection, connection.cursor() as cursor:
        tables = cursor.execute("select tablename from pg_tables where schemaname = %s", (schema,)).fetchall()
        for (table,) in tables:
            with cursor.copy(f"copy {schema}.{table} to stdout (format binary)".encode()) as rows:
                found += b"".join(rows)
    return found
