"""Limits that no other test reaches, each at its figure."""

from __future__ import annotations

import asyncio
import sys
import typing
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import typing_extensions

from outlive import Operation, Outlive, Retry, Run
from outlive.app.settings import Settings
from outlive.engine import failures, replay
from outlive.errors import BadArguments, NotSerialisable, SettingInvalid, StepFailed, StoreUnavailable, UnsafeDurability
from outlive.log.codec import codec_of
from outlive.secret.scrubber import Scrubber
from outlive.store.sqlite import connection, store
from tests.engine.rig import Rig, rig_at

app: Outlive[None] = Outlive()


class Loud(Exception):
    """Too much to say."""

    retry_after: object = None


def fails(message: str) -> None:
    raise Loud(message)


@app.tool(timeout=timedelta(milliseconds=10))
async def never_answers(op: Operation[None]) -> None:
    await asyncio.Event().wait()


@app.tool(effect="read", timeout=timedelta(milliseconds=10), retry=Retry(attempts=2))
async def never_reads(op: Operation[None]) -> None:
    await asyncio.Event().wait()


@app.agent()
async def asks(run: Run[None], what: str) -> str:
    try:
        if what == "step":
            await run.step(fails, "!" * 5000)
        elif what == "read":
            await run.call(never_reads)
        else:
            await run.call(never_answers)
    except StepFailed as failed:
        return f"{len(failed.message)} of {failed.type} with {failed.data}"
    return "done"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig_at(tmp_path) as made:
        yield made


async def test_an_id_has_at_most_200_characters(rig: Rig) -> None:
    here = rig.app(app)
    assert (await here.start(asks, "step", id="x" * 200)).id == "x" * 200
    for refused in ("x" * 201, "two\nlines", " "):
        with pytest.raises(BadArguments, match="200 characters"):
            await here.start(asks, "step", id=refused)


async def test_a_step_has_one_attempt_and_its_error_is_cut(rig: Rig) -> None:
    here = rig.app(app)
    handle = await here.start(asks, "step", id="run")
    await rig.settle(rig.worker(here))
    assert await handle.result() == "4000 of Loud with {}"
    assert await rig.kinds("run") == ["started", "step", "ended"]


async def test_an_external_tool_past_its_time_out_is_unknown(rig: Rig) -> None:
    here = rig.app(app)
    await here.start(asks, "external", id="run")
    await rig.settle(rig.worker(here))
    (operation,) = await rig.operations("run")
    assert (operation.status, (await rig.row("run")).reason) == ("unknown", "operation in doubt")


async def test_a_read_tool_past_its_time_out_is_tried_again(rig: Rig) -> None:
    here = rig.app(app)
    await here.start(asks, "read", id="run")
    row = await rig.until_ended(rig.worker(here), "run")
    assert (row.status, await rig.kinds("run")) == ("failed", ["started", "attempt", "suspended", "step", "ended"])


async def test_a_worker_claims_at_most_20_runs_at_once(rig: Rig) -> None:
    here = rig.app(app)
    for _ in range(25):
        await here.start(asks, "step")
    worker = rig.worker(here)
    assert await worker.claim() == 20
    await worker.idle()
    assert await worker.claim() == 5
    await worker.idle()


def test_a_lease_is_at_least_500_ms() -> None:
    assert Settings.load({}, lease="500ms").lease == timedelta(milliseconds=500)
    with pytest.raises(SettingInvalid, match="at least 500ms"):
        Settings.load({"OUTLIVE_LEASE": "499ms"})


def test_a_wait_that_is_asked_for_is_at_most_a_day() -> None:
    loud = Loud()
    loud.retry_after = 10**9
    assert failures.retry_after(loud) == 24 * 3600


def test_data_of_an_exception_that_is_too_long_is_left_out() -> None:
    assert failures.record(Loud("!" * 3900), Scrubber()).data == {"args": ["!" * 3900]}
    assert failures.record(Loud("!" * 4000), Scrubber()).data == {}


def test_a_call_is_shown_with_120_characters() -> None:
    whole = replay.show("f", '{"text": "' + "x" * 110 + '"}')
    assert whole == f'f(text="{"x" * 110}")'
    assert len(whole) == 120
    assert replay.show("f", '{"text": "' + "x" * 111 + '"}') == f'f(text="{"x" * 111}…'


class Typed(typing_extensions.TypedDict):
    n: int


def test_a_typed_dict_comes_from_typing_extensions_on_311() -> None:
    assert codec_of(Typed).encode({"n": 1}, where="here") == '{"n":1}'
    from_typing = typing.TypedDict("from_typing", {"n": int})  # noqa: UP013 - made here, so that both kinds stand side by side
    if sys.version_info < (3, 12):
        with pytest.raises(NotSerialisable, match="typing_extensions"):
            codec_of(from_typing)


async def test_an_old_sqlite_and_a_shared_disk_are_refused(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    monkeypatch.setattr(store, "OLDEST", (99, 0, 0))
    with pytest.raises(StoreUnavailable, match="is older than"):
        await store.open_sqlite(url, clock=rig.clock)
    monkeypatch.undo()
    kind = connection._network_filesystem(Path("/"))
    assert kind == ""
    monkeypatch.setattr(connection, "_network_filesystem", lambda path: "nfs4")
    with pytest.raises(UnsafeDurability, match="a file on nfs4"):
        await store.open_sqlite(url, clock=rig.clock)
