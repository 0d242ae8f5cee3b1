"""Approvals among real processes: workers are killed and frozen around the use of one, people decide at once, a deploy
comes between. Whatever comes of it, the bank has what somebody agreed to, and that once.
"""

import json
import signal
from itertools import pairwise
from pathlib import Path

from outlive.model.approval import ApprovalRow
from tests.kills.consent_scene import approve, asked, fits, of, reading, start, worker
from tests.kills.consents import DIRECTORY
from tests.kills.scene import BOTH, PATIENCE, POSTGRES_FIRST, SQLITE_FIRST, Scene, Worker, kill, scene
from tests.kills.voter import PLAN, WORDS, Told, Turn
from tests.kills.waiting import until

USED_ONCE = ["proposed", "decided", "intent", "outcome"]


def charge(here: Scene, invoice: str) -> str:
    """The id of the one charge that the bank has for an invoice."""
    [found] = [effect["charge_id"] for effect in here.bank.ledger()["effects"] if effect["invoice"] == invoice]
    return found


async def told_of(here: Scene, run: str) -> list[str]:
    """The kinds that tell of an approval and of its use. An intent that came too late to be sent is followed by another
    one, under the same approval: they count as one.
    """
    kinds = {"proposed", "decided", "intent", "outcome", "unknown"}
    every = [line.kind for line in await here.log(run) if line.kind in kinds]
    return [kind for before, kind in pairwise(["", *every]) if kind != before]


async def ended_by(one: Worker, here: Scene) -> None:
    """It drains: what it would still do has been done, and what it would still send is sent."""
    one.send_signal(signal.SIGTERM)
    assert await here.exited(one) == 0


@BOTH
async def test_killed_around_the_use_of_an_approval(tmp_path: Path, store: str) -> None:
    """Before it is used, between use and send, and between the act and its record: one dead worker, four runs."""
    async with scene(tmp_path, store=store) as here:
        for invoice in ("acted", "unknown"):
            here.bank.rule("hold", when="after", invoice=invoice)
        first = worker(here)
        tools = {"unused": "checked", "unsent": "checked", "acted": "checked", "unknown": "unseen"}
        runs = {invoice: await start(here, tool, invoice) for invoice, tool in tools.items()}
        rows = {invoice: await asked(here, invoice) for invoice in runs}
        for invoice, point in (("unused", "hang before use"), ("unsent", "hang before send")):
            here.arm(point)
            await approve(here, rows[invoice])
            await here.reached(point)
        for invoice in ("acted", "unknown"):
            await approve(here, rows[invoice])
        here.bank.wait_held(2, timeout=60)
        assert here.counted_now() == {"acted": 1, "unknown": 1}
        kill(first)
        here.bank.release()

        last = worker(here)
        for invoice in ("unused", "unsent", "acted"):
            assert await runs[invoice].result(timeout=PATIENCE) == charge(here, invoice)
        row = await here.status("unknown", "blocked")
        assert row.reason == "operation in doubt"
        assert here.counted() == {invoice: 1 for invoice in runs}

        assert await told_of(here, "unused") == USED_ONCE
        assert await told_of(here, "unsent") == ["proposed", "decided", "intent", "unknown", "intent", "outcome"]
        assert await told_of(here, "acted") == ["proposed", "decided", "intent", "unknown", "outcome"]
        assert (await here.operation("acted")).how == "lookup"
        assert await told_of(here, "unknown") == ["proposed", "decided", "intent", "unknown"]
        for invoice in runs:
            [used] = await of(here, invoice)
            operation = await here.operation(invoice)
            assert (used.id, used.status, operation.approval) == (rows[invoice].id, "approved", used.id)
            assert used.used_at is not None
            too_late = here.outlive("reject", used.id, "--revoke", "--who", "ada", "--role", "finance", "--why", "no")
            assert "is used and cannot be decided" in too_late.stderr
        await ended_by(last, here)
        assert here.counted() == {invoice: 1 for invoice in runs}
        await fits(here)


@SQLITE_FIRST
async def test_two_go_on_with_what_was_approved(tmp_path: Path, store: str) -> None:
    """A worker is frozen with a good approval in its hand, another one uses it; and a run is resumed twice at once."""
    async with scene(tmp_path, store=store) as here:
        here.arm("stop before use")
        zombie = worker(here)
        frozen = await start(here, "checked", "frozen")
        await approve(here, await asked(here, "frozen"))
        await here.stopped(zombie)
        other = worker(here)
        assert await frozen.result(timeout=PATIENCE) == charge(here, "frozen")
        zombie.send_signal(signal.SIGCONT)

        paused = await start(here, "checked", "paused")
        waiting = await asked(here, "paused")
        await paused.pause(who="ada")

        async def stands_still() -> bool:
            row = await here.row("paused")
            return row.paused_at is not None and row.owner is None

        await until(stands_still, "the run is paused")
        await approve(here, waiting)
        said = [here.process("outlive", "resume", "paused", "--why", "go on", "--who", who) for who in ("ada", "ben")]
        assert await paused.result(timeout=PATIENCE) == charge(here, "paused")
        for process in said:
            await here.exited(process)
        for one in (zombie, other):
            await ended_by(one, here)
        for run in ("frozen", "paused"):
            assert await told_of(here, run) == USED_ONCE
            assert [row.status for row in await of(here, run)] == ["approved"]
        assert here.counted() == {"frozen": 1, "paused": 1}
        await fits(here)


async def voted(here: Scene, turns: list[Turn]) -> dict[str, dict[str, Told]]:
    """What each person was told about each approval, when all of them have done what the plan says."""
    people = sorted({who for turn in turns for who in turn.acts})
    url = here.environment["OUTLIVE_STORE"]
    processes = [here.process("tests.kills.voter", url, who, str(here.directory)) for who in people]
    for who in people:
        await here.until_file(f"{who} is ready")
    begin = await here.store.now() + 500
    moved = [turn.model_copy(update={"at": turn.at or begin + 100 * place}) for place, turn in enumerate(turns)]
    (here.directory / "plan being written").write_bytes(PLAN.dump_json(moved))
    (here.directory / "plan being written").rename(here.directory / "plan")
    for process in processes:
        assert await here.exited(process) == 0
    told: dict[str, dict[str, Told]] = {turn.approval: {} for turn in turns}
    for who in people:
        for one in WORDS.validate_json((here.directory / f"{who} was told").read_bytes()):
            told[one.approval][who] = one
    return told


@BOTH
async def test_three_people_decide_at_once(tmp_path: Path, store: str) -> None:
    """Of a quorum of two the third is told; of an approval and a rejection one counts. Workers go on meanwhile."""
    async with scene(tmp_path, store=store) as here:
        workers = [worker(here), worker(here)]
        quorums = {f"quorum {number}": "agreed" for number in range(6)}
        singles = {f"single {number}": "checked" for number in range(6)}
        runs = {invoice: await start(here, tool, invoice) for invoice, tool in {**quorums, **singles}.items()}
        rows = {invoice: await asked(here, invoice) for invoice in runs}
        turns = [
            Turn(
                approval=rows[invoice].id, at=0,
                acts={"ada": "approve", "ben": "approve" if invoice in quorums else "reject", "cem": "approve"},
            )
            for pair in zip(quorums, singles, strict=True) for invoice in pair
        ]  # fmt: skip
        told = await voted(here, turns)
        results = {invoice: await run.result(timeout=PATIENCE) for invoice, run in runs.items()}
        for one in workers:
            await ended_by(one, here)
        counted = here.counted()
        for invoice, row in rows.items():
            now, answers = await reading(here, row), told[row.id]
            counts = {who for who, one in answers.items() if one.word != "ApprovalClosed"}
            assert {vote.who for vote in now.votes} == counts
            assert [vote.at for vote in now.votes] == sorted(vote.at for vote in now.votes)
            late = "is approved and cannot be decided" if now.row.status == "approved" else "is rejected and cannot be"
            assert all(late in one.why for who, one in answers.items() if who not in counts)
            words = sorted(answers[who].word for who in counts)
            if invoice in quorums:
                assert (words, now.row.votes) == (["approved", "asked"], 2)
            else:
                assert (words, now.row.votes) == ([now.row.status], 1)
            sent = now.row.status == "approved"
            assert counted.get(invoice, 0) == sent
            assert results[invoice] == (charge(here, invoice) if sent else "rejected: ben does not want it")
            assert await told_of(here, invoice) == (USED_ONCE if sent else USED_ONCE[:2])
        await fits(here)


@SQLITE_FIRST
async def test_an_approval_in_the_moment_in_which_it_expires(tmp_path: Path, store: str) -> None:
    """It counts before, and not from then on; what was approved in time and not used in time is asked for anew."""
    async with scene(tmp_path, store=store) as here:
        one = worker(here)
        offsets = (-400, -40, -20, -10, -5, 0, 0, 5, 10, 20)
        runs = [await start(here, "hurried", f"late {number}") for number in range(len(offsets))]

        async def all_asked() -> list[ApprovalRow] | None:
            found = [row for run in runs for row in (await of(here, run.id))[:1]]
            return found if len(found) == len(runs) else None

        rows = await until(all_asked, "every run has asked")
        turns = [
            Turn(approval=row.id, at=row.expires_at + offset, acts={"ada": "approve"})
            for row, offset in zip(rows, offsets, strict=True)
        ]
        told = await voted(here, sorted(turns, key=lambda turn: turn.at))
        results = {run.id: await run.result(timeout=PATIENCE) for run in runs}
        await ended_by(one, here)
        counted = here.counted()
        for row in rows:
            answer, now = told[row.id]["ada"], (await of(here, row.run))[0]
            if answer.before >= row.expires_at:
                assert answer.word == "ApprovalClosed", answer
            if answer.after < row.expires_at:
                assert answer.word == "approved", answer
            in_time = now.used_at is not None and now.used_at < row.expires_at
            assert counted.get(row.run, 0) == in_time <= (answer.word == "approved")
            assert results[row.run].startswith("ch_" if in_time else "rejected: expired")
            later = [one.status for one in (await of(here, row.run))[1:]]
            assert later == (["expired"] if answer.word == "approved" and not in_time else [])
        assert any(told[row.id]["ada"].before >= row.expires_at for row in rows)
        await fits(here)


@POSTGRES_FIRST
async def test_a_role_that_ends_between_approval_and_send(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        (tmp_path / DIRECTORY).write_text(json.dumps(["ada", "ben"]))
        first = worker(here)
        run = await start(here, "checked", "A")
        row = await asked(here, "A")
        here.arm("hang before use")
        await approve(here, row)
        await here.reached("hang before use")
        (tmp_path / DIRECTORY).write_text(json.dumps(["ben"]))
        kill(first)
        last = worker(here)
        again = await asked(here, "A", times=2)
        assert here.counted() == {}
        words = ("--role", "finance", "--app", "tests.kills.consents:app")
        refused = here.outlive("approve", again.id, "--who", "ada", *words)
        assert "they do not have the role finance" in refused.stderr
        assert here.outlive("approve", again.id, "--who", "ben", *words).returncode == 0
        assert await run.result(timeout=PATIENCE) == charge(here, "A")
        await ended_by(last, here)
        assert here.counted() == {"A": 1}
        assert [one.status for one in await of(here, "A")] == ["superseded", "approved"]
        await fits(here)


@POSTGRES_FIRST
async def test_a_deploy_changes_what_waits_for_an_approval(tmp_path: Path, store: str) -> None:
    """Rule, tool and arguments of three runs are others in the next release; nothing of them is sent by it."""
    async with scene(tmp_path, store=store) as here:
        first = worker(here, OUTLIVE_BUILD="good")
        await here.owner(first)
        tools = {"same": "checked", "rule": "checked", "argument": "checked", "name": "renamed"}
        runs = {invoice: await start(here, tool, invoice) for invoice, tool in tools.items()}
        rows = {invoice: await asked(here, invoice) for invoice in runs}
        await ended_by(first, here)
        for row in rows.values():
            await approve(here, row)

        second = worker(here, OUTLIVE_BUILD="bad", RELEASE="bad")
        await here.owner(second)
        assert await runs["same"].result(timeout=PATIENCE) == charge(here, "same")
        stricter = await asked(here, "rule", times=2)
        assert stricter.role == "board"
        for invoice in ("argument", "name"):
            assert (await here.status(invoice, "blocked")).reason == "diverged"
            assert [row.status for row in await of(here, invoice)] == ["approved"]
        assert here.counted() == {"same": 1}
        await ended_by(second, here)
        await approve(here, stricter, who="bo", role="board")

        third = worker(here, OUTLIVE_BUILD="good")
        for invoice in ("argument", "name"):
            assert await runs[invoice].result(timeout=PATIENCE) == charge(here, invoice)
            [row] = await of(here, invoice)
            assert row.id == rows[invoice].id
        # What the board has agreed to is not what finance is asked for now, and its own word does not come back.
        last = await asked(here, "rule", times=3)
        assert last.role == "finance"
        await approve(here, last, who="ben")
        assert await runs["rule"].result(timeout=PATIENCE) == charge(here, "rule")
        await ended_by(third, here)
        assert [row.status for row in await of(here, "rule")] == ["superseded", "superseded", "approved"]
        assert here.counted() == {invoice: 1 for invoice in runs}
        await fits(here)
