"""SIGKILL at an exact moment of an operation, for each effect; the bank counts what happened."""

from pathlib import Path

from tests.kills.scene import BOTH, SQLITE_FIRST, kill, scene
from tests.kills.waiting import until


@BOTH
async def test_killed_anywhere_acts_once(tmp_path: Path, store: str) -> None:
    """Before the send, before the act, between act and record, and after the record: four runs of one dead worker."""
    async with scene(tmp_path, store=store) as here:
        here.bank.rule("hold", when="before", invoice="B")
        here.bank.rule("hold", when="after", invoice="C")
        here.bank.rule("hold", when="before", invoice="D2")
        here.arm("hang before send")
        first = here.worker()
        runs = [await here.pay("looked_up", "A")]
        await here.reached("hang before send")
        runs += [await here.pay("looked_up", *invoices) for invoices in (("B",), ("C",), ("D", "D2"))]
        held = {one["invoice"]: one["request"] for one in here.bank.wait_held(3, timeout=90)}
        kill(first)
        assert here.counted_now() == {"C": 1, "D": 1}
        # The requests that had not acted are gone with their sender; the bank's answer to C finds nobody.
        here.bank.release(held["B"], held["D2"], then="drop")
        here.bank.release(held["C"])

        here.worker()
        for run in runs:
            await here.result(run)
        assert here.counted() == {"A": 1, "B": 1, "C": 1, "D": 1, "D2": 1}

        async def settled(run: str, number: int = 0) -> tuple[int, str]:
            operation = await here.operation(run, number)
            assert operation.status == "succeeded"
            return operation.attempt, operation.how

        assert await settled("A") == await settled("B") == await settled("D", 1) == (2, "call")
        assert await settled("C") == (1, "lookup")
        assert await settled("D") == (1, "call")
        for run in runs:
            assert "takeover" in {line.data.get("why") for line in await here.log(run.id)}


@SQLITE_FIRST
async def test_a_request_that_acts_after_the_look_up_said_no(tmp_path: Path, store: str) -> None:
    """It is still on its way when the next worker asks: the *no* is not believed before it must have arrived."""
    async with scene(tmp_path, store=store) as here:
        here.bank.rule("hold", when="before", invoice="A")
        first = here.worker()
        run = await here.pay("looked_up", "A")
        here.bank.wait_held(1, timeout=90)
        kill(first)
        here.worker()
        here.bank.wait(answered=1, timeout=90)  # the look-up, which says that there is no such charge
        here.bank.release()
        await here.result(run)
        assert here.counted() == {"A": 1}
        assert (await here.operation("A")).how == "lookup"


@SQLITE_FIRST
async def test_without_a_look_up_a_person_decides(tmp_path: Path, store: str) -> None:
    words = {"happened": "after", "did-not-happen": "before", "abandon": "after"}
    async with scene(tmp_path, store=store) as here:
        for invoice, when in (*words.items(), ("guess", "before")):
            here.bank.rule("hold", when=when, invoice=invoice)
        first = here.worker()
        runs = {name: await here.pay("blind", name) for name in words}
        runs["guess"] = await here.pay("far_away", "guess")
        held = {one["invoice"]: one["request"] for one in here.bank.wait_held(4, timeout=90)}
        kill(first)
        here.bank.release(held["happened"], held["abandon"])
        here.bank.release(held["did-not-happen"], held["guess"], then="drop")

        here.worker()
        for name in runs:
            row = await here.status(name, "blocked")
            operation = await here.operation(name)
            assert (row.reason, operation.status) == ("operation in doubt", "unknown")
            assert operation.id in row.detail
        listing = here.outlive("ps").stdout
        assert all(name in listing for name in runs), listing

        async def resolve(word: str, *options: str) -> int:
            operation = await here.operation(word)
            said = here.outlive("resolve", word, operation.id, word, "--who", "dana", "--why", "the books", *options)
            return said.returncode

        doubtful = (await here.operation("guess")).id
        too_early = here.outlive("resolve", "guess", doubtful, "did-not-happen", "--why", "a guess")
        assert too_early.returncode != 0
        assert "may still be on its way" in too_early.stderr

        assert await resolve("happened", "--outcome", '"ch_000001"') == 0
        assert await resolve("abandon") == 0

        async def accepted() -> bool:
            return await resolve("did-not-happen") == 0

        await until(accepted, "did-not-happen is accepted once nothing can be on its way")
        assert await here.result(runs["happened"]) == ["ch_000001"]
        assert await here.result(runs["abandon"]) == ["abandoned"]
        assert await here.result(runs["did-not-happen"]) == ["ch_000003"]
        assert here.counted() == {"happened": 1, "abandon": 1, "did-not-happen": 1}
        assert (await here.operation("did-not-happen")).attempt == 2


@SQLITE_FIRST
async def test_an_idempotent_call_is_repeated_under_its_key(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store, dedupe=True) as here:
        here.bank.rule("hold", when="after", invoice="A")
        first = here.worker()
        run = await here.pay("deduped", "A")
        here.bank.wait_held(1, timeout=90)
        kill(first)
        here.worker()
        assert await here.result(run) == ["ch_000001"]
        here.bank.release()
        here.bank.wait(answered=2)
        keys = [one["key"] for one in here.bank.requests()]
        assert len(keys) == 2 and len(set(keys)) == 1
        assert here.counted() == {"A": 1}


@SQLITE_FIRST
async def test_an_answer_that_does_not_come_in_time_is_looked_up_at_once(tmp_path: Path, store: str) -> None:
    """No worker dies here. The send window is long over by then, which must not keep the look-up from being sent."""
    async with scene(tmp_path, store=store) as here:
        here.bank.rule("hold", when="after", invoice="A")
        here.worker()
        assert await here.result(await here.pay("looked_up", "A")) == ["ch_000001"]
        here.bank.release()
        here.bank.wait(answered=2)
        assert here.counted() == {"A": 1}
        log = await here.log("A")
        assert [line.data["answer"] for line in log if line.kind == "lookup"] == ["happened"]
        assert ["TimedOut" in str(line.data["why"]) for line in log if line.kind == "unknown"] == [True]


@SQLITE_FIRST
async def test_a_refused_look_up_is_asked_again(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        here.bank.rule("drop_before_act", invoice="A")
        here.bank.rule("refuse", on="lookup")
        here.worker()
        await here.result(await here.pay("looked_up", "A"))
        assert here.counted() == {"A": 1}
        answers = [line.data["answer"] for line in await here.log("A") if line.kind == "lookup"]
        assert answers[0] == "unclear" and answers[-1] == "did not happen"
