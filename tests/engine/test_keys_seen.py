"""What people see of business keys: whose they are, who waits for what in the end, and what does not fit."""

from __future__ import annotations

import pytest

from outlive import Run
from outlive.app.audit import Misfit, Progress, verify_run
from outlive.app.doctor import Tally, examine
from outlive.app.keys import listed, statuses
from outlive.app.operate import report
from outlive.app.projection import unlike
from outlive.errors import SettingInvalid
from outlive.model.business import KeyFilter
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.keeping import Kept
from outlive.store.sqlite import SQLiteStore
from tests.engine import keyed
from tests.engine.keyed import asked, bank, begin, calls, crash_in_flight, decide, key, later, operation
from tests.engine.rig import Rig


@pytest.fixture(autouse=True)
def fresh() -> None:
    keyed.reset()


async def misfits(rig: Rig, run: str) -> list[Misfit]:
    assert isinstance(rig.store, Kept)
    return [one async for one in verify_run(rig.store, DEFAULT_TENANT, run, Progress())]


async def set_key(rig: Rig, change: str) -> None:
    assert isinstance(rig.store, SQLiteStore)
    await rig.store._write(lambda database, _: database.execute(f"update business_key set {change}"))


async def deadlocks(rig: Rig) -> list[tuple[str, str]]:
    assert isinstance(rig.store, Kept)
    found = [one async for one in examine(rig.store, Tally(), accept_unsafe=True)]
    return [(one.subject, one.why) for one in found if one.trouble == "deadlock"]


async def test_a_run_that_waits_shows_whose_key_it_is_and_why_that_run_stands(either: Rig) -> None:
    await begin(either, "a")
    await crash_in_flight(either)
    worker = await begin(either, "b")
    await either.settle(worker)
    first = await operation(either, "a")
    [[link]] = (await report(either.store, "default", "b")).awaited
    assert link.said() == f"business key charge/INV-7: operation {first.id} of run a, which is running"
    await either.take_over(worker)
    found = await report(either.store, "default", "b")
    [[link]] = found.awaited
    assert link.said().endswith("of run a, which is blocked: operation in doubt")
    assert [one.id for one in found.in_doubt_elsewhere] == [first.id], "what has to be resolved is named"
    assert await deadlocks(either) == []
    await decide(either, "a", "happened", '"r"')
    await either.settle(worker)
    assert (await report(either.store, "default", "b")).awaited == []
    assert await misfits(either, "a") == await misfits(either, "b") == []


def twofold(mine: str, theirs: str) -> keyed.Body:
    """A run that has one key until somebody tells, and wants another one meanwhile."""

    async def body(run: Run[None], name: str) -> object:
        return await run.gather(run.call(asked, mine), run.call(asked, theirs))

    return body


async def test_a_chain_is_followed_to_its_root_and_a_circle_is_named(either: Rig) -> None:
    bank.hook = later
    worker = await begin(either, "a", body=calls(asked, "INV-1"))
    await either.settle(worker)
    await begin(either, "b", body=twofold("INV-2", "INV-1"))
    await either.settle(worker)
    await begin(either, "c", body=calls(asked, "INV-2"))
    await either.settle(worker)
    [chain] = (await report(either.store, "default", "c")).awaited
    assert [link.key.mark.run for link in chain] == ["b", "a"]
    assert await deadlocks(either) == []


async def test_two_runs_that_wait_for_each_other_are_named(either: Rig) -> None:
    bank.hook = later

    async def first(run: Run[None], name: str) -> object:
        async def second() -> object:
            await run.receive("go", int)
            return await run.call(asked, "INV-2" if name == "a" else "INV-1")

        return await run.gather(run.call(asked, "INV-1" if name == "a" else "INV-2"), second())

    worker = await begin(either, "a", "b", body=first)
    await either.settle(worker)
    for run in ("a", "b"):
        await either.app(keyed.app).handle(keyed.clerk, run).send("go", 1, key="k")
    await either.settle(worker)
    [(subject, why)] = await deadlocks(either)
    assert subject == "a" and "a → b → a" in why and "outlive cancel a" in why
    await either.app(keyed.app).handle(keyed.clerk, "a").terminate(who="ada", why="it stands in the way")
    await either.settle(worker)
    assert await deadlocks(either) == []


async def test_keys_are_listed_the_last_change_first(either: Rig) -> None:
    worker = await begin(either, "a", body=calls(asked, "INV-1"))
    await either.settle(worker)
    await begin(either, "b", body=calls(asked, "INV-2"))
    either.clock.advance(keyed.HOUR)
    await either.settle(worker)
    assert [one.mark.shown for one in await listed(either.store, "default", KeyFilter())] == [
        "charge/INV-2", "charge/INV-1",
    ]  # fmt: skip
    assert statuses("open,free") == ("open", "free")
    for wrong in ("", "nonsense", "open,nonsense"):
        with pytest.raises(SettingInvalid):
            statuses(wrong)


async def test_what_was_changed_in_a_key_is_found(rig: Rig) -> None:
    worker = await begin(rig, "a")
    await rig.settle(worker)
    await begin(rig, "b")
    await rig.settle(worker)
    assert await misfits(rig, "a") == await misfits(rig, "b") == []
    for change, run, why in [
        ("status = 'free'", "a", "it is free, the operation succeeded"),
        ("status = 'succeeded', outcome = '\"forged\"'", "a", "its outcome is"),
        ("operation = 'op-other'", "b", "it is operation op-other's"),
        ("operation = 'op-other'", "a", "operation op-other of run a has it, and this one is succeeded"),
    ]:
        await set_key(rig, change)
        [misfit] = await misfits(rig, run)
        assert why in misfit.why, (change, misfit)
    row = await operation(rig, "a")
    assert unlike(row, (await key(rig)).mark) != ""
