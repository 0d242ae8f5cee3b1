"""`renamed`: what older code has recorded under another name is the same call, and an operation keeps its record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from outlive import Operation, Outlive, Run
from outlive.app import decide
from outlive.engine.control import Control
from outlive.engine.definition import AgentSpec
from outlive.engine.worker import Worker, owner_name
from outlive.errors import Refused
from outlive.model.ids import DEFAULT_TENANT
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, act, add, base, begin, carry_on, does, double, subject

NEW: Outlive[None] = Outlive()


@NEW.tool(name="settle", effect="external")
async def settle(op: Operation[None], what: str) -> str:
    return f"settled {what}"


def knowing(worker: Worker, renamed: Mapping[str, str]) -> Worker:
    """The same worker, whose agent knows former names."""
    worker.agents = {"subject": AgentSpec("subject", "2", subject.fn, renamed=renamed)}
    return worker


async def _lost(op: object) -> str:
    raise ConnectionError("the answer was lost")


async def _retry(rig: Rig) -> None:
    control = Control(rig.store, rig.clock, owner_name(rig.clock))
    await control.retry(await rig.row(RUN), who="a person", why="a test")


async def old(run: Run[None]) -> object:
    one = await run.step(add, 1)
    both = await run.gather(run.step(add, one), run.step(double, one), run.step(add, 5))
    again = await run.step(add, 1)
    return await run.call(act, f"pay {[*both, again]}")


async def new(run: Run[None]) -> object:
    """As `old`, under other names; then more calls under the new ones."""
    plus = run.options(name="plus")
    one = await plus.step(add, 1)
    both = await run.gather(plus.step(add, one), run.step(double, one), plus.step(add, 5))
    again = await plus.step(add, 1)
    paid = await run.call(settle, f"pay {[*both, again]}")
    more = await plus.step(add, 6)
    return [paid, more, await run.gather(plus.step(add, 7), plus.step(add, 8))]


_HOUR = timedelta(hours=1)
RENAMED = {"add": "plus", "act": "settle"}


async def test_new_names_meet_what_was_recorded_under_the_old_ones(rig: Rig) -> None:
    does.tool = _lost
    await rig.settle(await begin(rig, old))
    [operation] = await rig.operations(RUN)
    assert operation.status == "unknown"
    steps = list(does.steps)

    # Without knowing, the new code stops.
    await _retry(rig)
    await rig.settle(await carry_on(rig, new, code="new"))
    assert (await rig.row(RUN)).reason == "diverged"

    await rig.settle(knowing(await carry_on(rig, new, code="knows"), RENAMED))
    assert (await rig.row(RUN)).reason == "operation in doubt"
    assert does.steps == steps
    registry = Outlive[None]().registry
    registry.agents = {"subject": AgentSpec("subject", "2", subject.fn, renamed=RENAMED)}
    registry.tools = {"settle": settle}
    await decide.resolve(
        Control(rig.store, rig.clock, owner_name(rig.clock)), registry, DEFAULT_TENANT, RUN, operation.id, "happened",
        who="ada", why="seen", outcome='"paid"',
    )  # fmt: skip
    for code in ("knows", "another"):
        await rig.settle(knowing(await carry_on(rig, new, code=code), RENAMED))
    row = await rig.row(RUN)
    assert row.status == "succeeded", row.detail
    [settled] = await rig.operations(RUN)
    assert (settled.id, settled.tool, settled.key, settled.status) == (operation.id, "act", operation.key, "succeeded")
    assert rig.sent == [("act", {"what": "pay [3, 4, 6, 2]"})]
    assert (does.steps[: len(steps)], sorted(does.steps[len(steps) :])) == (steps, ["add 6", "add 7", "add 8"])


def _parts(number: int) -> Body:
    """The first of `number` steps under the old name, the others under the new one, each an hour after the other."""

    async def body(run: Run[None]) -> object:
        await run.step(add, 0)
        for part in range(1, number):
            await run.options(name="plus").step(add, part)
        await run.sleep(_HOUR)
        return None

    return body


def _merged(number: int) -> Body:
    """All of them under the new name."""

    async def body(run: Run[None]) -> object:
        plus = run.options(name="plus")
        await plus.step(add, 0)
        await plus.step(add, 1)
        for part in range(2, number):
            await run.sleep(_HOUR)
            await plus.step(add, part)
        await run.sleep(_HOUR)
        return None

    return body


async def test_an_old_and_a_new_name_side_by_side_keep_their_order_on_every_replay(rig: Rig) -> None:
    """The log has `add` and `plus`; what is recorded next never takes the place of either."""
    await rig.settle(await begin(rig, _parts(2), code="first"))
    for parts, code in ((3, "second"), (4, "third"), (5, "fourth")):
        rig.clock.advance(_HOUR)
        await rig.settle(knowing(await carry_on(rig, _merged(parts), code=code), {"add": "plus"}))
        assert (await rig.row(RUN)).status == "waiting", (await rig.row(RUN)).detail
    assert does.steps == [f"add {number}" for number in range(5)]
    keys = [entry.key for entry in await rig.entries(RUN) if entry.kind == "step"]
    assert keys == ["/add/0", "/plus/0", "/plus/1", "/plus/2", "/plus/3"]


async def test_other_arguments_under_a_new_name_still_diverge(rig: Rig) -> None:
    does.tool = _lost
    await rig.settle(await begin(rig, old))
    await _retry(rig)

    async def changed(run: Run[None]) -> object:
        return await run.options(name="plus").step(add, 2)

    await rig.settle(knowing(await carry_on(rig, changed, code="new"), RENAMED))
    row = await rig.row(RUN)
    assert row.reason == "diverged"
    assert "plus(x=2" in row.detail


@pytest.mark.parametrize(
    ("renamed", "says"),
    [
        ({"a": "a"}, "the same name"),
        ({"a": "b", "b": "c"}, "b is renamed as well"),
        ({"a": ""}, "a name is printable"),
        ({"a/b": "c"}, "a name is printable"),
    ],
)
def test_renamed_that_can_be_read_in_two_ways_is_refused(renamed: dict[str, str], says: str) -> None:
    with pytest.raises(Refused, match=says):
        base.agent(name="subject of renaming", renamed=renamed)(subject.fn)
