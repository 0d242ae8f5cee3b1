"""Cases of the store suite: a run leaves a store as rows, as of one moment, and arrives in another in one commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

from outlive.log.entry import BLOB_BYTES
from outlive.model.errors import BadBundle, Refused, RunExists, UnknownRun
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.store.bundles import Part
from outlive.store.port import Append, Change, Divergence
from outlive.testing.store_cases_keeping import MONTH, ended, forget, kept
from outlive.testing.store_scene import Raises, Scene, event, held, operation

_LARGE = f'"{"x" * BLOB_BYTES}"'
_RUN = RunId("r")


async def _full(scene: Scene, *, change: Change | None = None) -> None:
    """A run with something of everything; without a change it is still driven."""
    hold = await scene.hold()
    await scene.post(key="read")
    [message] = await scene.store.unread(DEFAULT_TENANT, _RUN)
    rows = (replace(operation(hold, 2), status="unknown"), replace(operation(hold, 1), status="succeeded"))
    first = Append(
        hold.authority, hold.head, (event(payload=_LARGE),), operations=rows, taken=(message.id,),
        divergence=Divergence("b9", "other calls"),
    )  # fmt: skip
    await scene.act(hold, first)
    await scene.append(hold, event("last"), change=change)
    await scene.post(key="unread")


async def _parts(scene: Scene, tenant: Tenant = DEFAULT_TENANT, run: str = "r") -> list[Part]:
    return [part async for part in kept(scene).parts(tenant, RunId(run))]


async def _put(scene: Scene, parts: Sequence[Part], tenant: Tenant) -> bool:
    secret = await scene.store.key(DEFAULT_TENANT)
    return await kept(scene).put_run(tenant, iter(parts), secret, now=scene.now)


ELSEWHERE = Tenant("elsewhere")


async def a_run_leaves_as_its_row_and_all_that_belongs_to_it(scene: Scene) -> None:
    await _full(scene)
    parts = await _parts(scene)
    kinds = [kind for kind, _ in parts]
    assert kinds == ["run", *["entry"] * 4, *["operation"] * 2, *["message"] * 2, "divergence"]
    rows = [row for _, row in parts]
    assert not {"owner", "token", "expires_at", "lease_ms"} & set(rows[0]), "its lease stays behind"
    assert [row["seq"] for row in rows[1:5]] == [0, 1, 2, 3]
    assert rows[3]["payload"] == _LARGE, "a blob goes with the entry that names it"
    assert [row["id"] for row in rows[5:7]] == ["r/op2", "r/op1"], "in the order of their first intent"
    assert [(row["sender_key"], row["taken_seq"] is None) for row in rows[7:9]] == [("read", False), ("unread", True)]
    async with Raises(UnknownRun):
        await _parts(scene, run="nobody")
    async with Raises(UnknownRun):
        await _parts(scene, ELSEWHERE)


async def an_ended_run_arrives_as_it_was(scene: Scene) -> None:
    await _full(scene, change=Change("failed", reason="no", detail="it could not"))
    parts, before = await _parts(scene), await scene.row()
    assert await kept(scene).known_key(ELSEWHERE) is None
    scene.advance(seconds=5)
    assert await _put(scene, parts, ELSEWHERE)
    assert await kept(scene).known_key(ELSEWHERE) == await scene.store.key(DEFAULT_TENANT)
    assert await scene.row("r", ELSEWHERE) == replace(before, tenant=ELSEWHERE)
    assert await scene.log("r", ELSEWHERE) == await scene.log()
    here = await scene.store.operations(DEFAULT_TENANT, _RUN)
    assert await scene.store.operations(ELSEWHERE, _RUN) == [replace(one, tenant=ELSEWHERE) for one in here]
    assert [one.sender_key for one in await scene.store.unread(ELSEWHERE, _RUN)] == ["unread"]
    assert await scene.store.divergences(ELSEWHERE, _RUN) == [Divergence("b9", "other calls")]
    assert await _parts(scene, ELSEWHERE) == parts


async def a_run_that_goes_on_arrives_paused_and_nobodys(scene: Scene) -> None:
    await _full(scene)
    parts = await _parts(scene)
    assert await _put(scene, parts, ELSEWHERE)
    row = await scene.row("r", ELSEWHERE)
    assert (row.status, row.paused_at, row.owner, row.expires_at) == ("ready", scene.now, None, None)
    assert [entry.kind for entry in (await scene.log("r", ELSEWHERE))[4:]] == ["claimed", "paused"]
    before = await scene.row()
    assert row.epoch == before.epoch + 1
    assert await scene.claims() == [], "nobody claims it until somebody resumes it"
    assert before.status == "running", "where it came from it is driven as before"


async def the_same_log_is_there_already_and_another_one_is_refused(scene: Scene) -> None:
    await _full(scene, change=Change("waiting", reason="a message"))
    parts = await _parts(scene)
    assert await _put(scene, parts, ELSEWHERE)
    assert not await _put(scene, parts, ELSEWHERE), "what is there goes on from it"
    assert not await _put(scene, parts, DEFAULT_TENANT)
    [claimed] = await scene.claims()
    await scene.append(held(claimed), event("went on"), change=Change("succeeded"))
    longer = await _parts(scene)
    async with Raises(RunExists):
        await _put(scene, longer, ELSEWHERE)
    third = Tenant("third")
    assert await scene.store.key(third) != await scene.store.key(DEFAULT_TENANT)
    async with Raises(Refused):
        await _put(scene, parts, third)
    assert await scene.store.run(third, _RUN) is None


async def what_its_parts_raise_leaves_the_store_as_it_was(scene: Scene) -> None:
    await _full(scene, change=Change("failed"))
    parts = await _parts(scene)

    def broken() -> Iterator[Part]:
        yield from parts[:-1]
        raise BadBundle(line=9, why="it is not what was written")

    secret = await scene.store.key(DEFAULT_TENANT)
    async with Raises(BadBundle):
        await kept(scene).put_run(ELSEWHERE, broken(), secret, now=scene.now)
    assert await scene.store.run(ELSEWHERE, _RUN) is None
    assert await kept(scene).known_key(ELSEWHERE) is None
    assert await kept(scene).homeless(ELSEWHERE, limit=10) == []


async def what_arrived_not_long_ago_is_not_forgotten(scene: Scene) -> None:
    await ended(scene)
    scene.advance(milliseconds=MONTH)
    parts = await _parts(scene)
    assert (await forget(scene, "r")).runs == 1
    assert await _put(scene, parts, DEFAULT_TENANT)
    assert (await forget(scene, "r")).runs == 0
    scene.advance(milliseconds=MONTH)
    assert (await forget(scene, "r")).runs == 1


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_run_leaves_as_its_row_and_all_that_belongs_to_it,
    an_ended_run_arrives_as_it_was,
    a_run_that_goes_on_arrives_paused_and_nobodys,
    the_same_log_is_there_already_and_another_one_is_refused,
    what_its_parts_raise_leaves_the_store_as_it_was,
    what_arrived_not_long_ago_is_not_forgotten,
)
