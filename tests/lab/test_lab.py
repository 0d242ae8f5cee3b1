"""The lab itself: time that only the test moves, what was executed and is in doubt, errors that say what to do."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

import pytest

from outlive import NotSent, Operation, Outlive, Retry, Run
from outlive.app.decide import Word
from outlive.errors import Refused, RunFailed, TooEarly
from outlive.testing import Fault, Stuck, lab


@dataclass
class Desk:
    """An office: when it was asked, and what it refuses."""

    asked: list[str] = field(default_factory=list)
    down: bool = False


app: Outlive[Desk] = Outlive()


@app.tool(retry=Retry(attempts=3, first=timedelta(days=3), most=timedelta(days=3)))
async def file_form(op: Operation[Desk], form: str) -> str:
    op.deps.asked.append(form)
    if op.attempt == 1:
        raise NotSent("closed today")
    return f"filed {form}"


@app.tool(effect="read", retry=Retry(attempts=2, first=timedelta(hours=10), most=timedelta(hours=10)))
async def look(op: Operation[Desk], form: str) -> str:
    op.deps.asked.append(f"look {form}")
    if op.attempt == 1:
        raise ConnectionError("busy")
    return form


@app.tool()
async def wire(op: Operation[Desk], cents: int) -> str:
    if op.deps.down:
        raise ConnectionError("the answer was lost")
    return f"wired {cents}"


@app.agent()
async def files(run: Run[Desk], form: str) -> str:
    return await run.call(file_form, form)


@app.agent()
async def looks(run: Run[Desk], form: str) -> str:
    return await run.call(look, form)


@app.agent()
async def wires(run: Run[Desk], cents: int) -> str:
    return await run.call(wire, cents)


@app.agent()
async def fails(run: Run[Desk], text: str) -> str:
    raise ValueError(text)


async def test_days_of_waiting_take_no_time() -> None:
    async with lab(app, deps=Desk()) as t:
        before = t.clock.now()
        assert await t.run(files, "tax") == "filed tax"
        assert t.clock.now() - before >= timedelta(days=1.5) / timedelta(milliseconds=1)
        assert t.sent("file_form") == [{"form": "tax"}, {"form": "tax"}]


async def test_time_passes_only_when_told_to_and_in_order() -> None:
    desk = Desk()
    async with lab(app, deps=desk) as t:
        late = await t.start(files, "tax")
        soon = await t.start(looks, "map")
        assert desk.asked == []
        await t.advance(hours=1)
        assert sorted(desk.asked) == ["look map", "tax"]
        assert (await t.status(late), await t.status(soon)) == ("waiting", "waiting")
        await t.advance(timedelta(hours=11))
        assert (await t.status(late), await t.status(soon)) == ("waiting", "succeeded")
        await t.advance(days=3)
        assert desk.asked[2:] == ["look map", "tax"]
        assert await late.result() == "filed tax"
        with pytest.raises(Refused, match="backwards"):
            await t.advance(hours=-1)


async def test_waiting_for_a_result_lets_time_pass() -> None:
    async with lab(app, deps=Desk()) as t:
        run = await t.start(looks, "map")
        assert await run.result() == "map"
        with pytest.raises(RunFailed, match="ValueError: no"):
            await t.run(fails, "no")


async def test_a_blocked_run_says_what_to_do_and_can_be_resolved() -> None:
    async with lab(app, deps=Desk(down=True)) as t:
        run = await t.start(wires, 42)
        with pytest.raises(Stuck, match=r'wire\(\{"cents":42\}\) is unknown.*t\.resolve'):
            await run.result()
        assert await t.status(run) == "blocked"
        with pytest.raises(TooEarly):
            await t.resolve(run, "wire", "did-not-happen")
        await t.resolve(run, "wire", "happened", outcome="wired 42")
        assert await run.result() == "wired 42"
        assert len(t.sent("wire")) == 1
        assert any("happened, says lab" in line for line in await t.log(run))
        with pytest.raises(Refused, match="it names 0 operations.*wire is succeeded"):
            await t.resolve(run, "wire", "happened", outcome="again")


async def test_did_not_happen_is_believed_later_and_sent_again() -> None:
    desk = Desk(down=True)
    async with lab(app, deps=desk) as t:
        with pytest.raises(Stuck):
            await t.run(wires, 42, id="w")
        await t.advance(hours=1)
        desk.down = False
        await t.resolve("w", "wire", "did-not-happen")
        await t.advance()
        assert await t.status("w") == "succeeded"
        assert len(t.sent("wire")) == 2


async def test_a_worker_that_dies_is_followed_by_another() -> None:
    async with lab(app, deps=Desk()) as t:
        t.crash(Fault("after", 1, "append"))
        run = await t.start(looks, "map")
        assert await run.result() == "map"
        assert any("takeover" in line for line in await t.log(run))


async def test_a_crash_that_never_happens_fails_the_test() -> None:
    with pytest.raises(AssertionError, match=r"died after call 60 of append: not met; .* [1-9]\d* of append"):
        async with lab(app, deps=Desk()) as t:
            t.crash(Fault("after", 60, "append"))
            assert await t.run(looks, "map") == "map"


async def test_a_crash_that_comes_after_the_workers_death_fails_the_test() -> None:
    with pytest.raises(AssertionError, match=r"call 9 of append: not met; its worker died before call 1 of append"):
        async with lab(app, deps=Desk()) as t:
            t.crash(Fault("die", 1, "append"))
            t.crash(Fault("die", 9, "append"))
            await t.run(looks, "map")


async def test_an_error_of_the_test_is_not_hidden_by_a_crash_that_did_not_happen() -> None:
    with pytest.raises(ZeroDivisionError):
        async with lab(app, deps=Desk()) as t:
            t.crash(Fault("die", 9, "append"))
            raise ZeroDivisionError


async def test_what_is_not_a_span_of_time_is_refused() -> None:
    async with lab(app, deps=Desk()) as t:
        before = t.clock.now()
        for wrong in (3, 3.5, "3 days"):
            with pytest.raises(Refused, match=r"advance\(.*say the unit, advance\(days=3\)"):
                await t.advance(cast(timedelta, wrong))
        with pytest.raises(Refused, match=r"advance\(day=…\).*units are weeks, days"):
            await t.advance(day=3)
        with pytest.raises(Refused, match="or a timedelta alone"):
            await t.advance(timedelta(days=1), hours=3)
        assert t.clock.now() == before


async def test_what_cannot_be_done_is_refused() -> None:
    async with lab(app, deps=Desk()) as t:
        with pytest.raises(Refused, match="say a Fault"):
            t.crash(cast(Fault, "after"))
        with pytest.raises(Refused, match="say one of happened, did-not-happen, abandon"):
            await t.resolve("x", "wire", cast(Word, "hapened"))
        for every, deaths in ((0, 1), (1, 3)):
            with pytest.raises(Refused, match="at least 1, and deaths are 1 or 2"):
                await t.sweep(looks, "map", every=every, deaths=deaths)


async def test_the_report_of_a_sweep_says_how_runs_came_to_rest() -> None:
    async with lab(app, deps=Desk()) as t:
        report = await t.sweep(wires, 42)
    assert set(report.ends) == {"succeeded", "blocked"}
    assert sum(report.ends.values()) == sum(report.methods.values()) == report.tried
    assert "blocked (" not in str(report) and "(blocked: an operation in doubt that only a person" in str(report)


async def test_names_that_do_not_exist_are_refused() -> None:
    async with lab(app, deps=Desk()) as t:
        with pytest.raises(Refused, match="no tool is called that; registered: file_form, look, wire"):
            t.sent("wires")
        with pytest.raises(AssertionError, match="no run is called 'x'"):
            await t.status("x")
