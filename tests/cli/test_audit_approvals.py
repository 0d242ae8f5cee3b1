"""`outlive audit verify` of approvals, on both stores: a row or vote that is changed, added or taken away is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from outlive import Operation, Outlive, Run
from outlive.app.audit import Misfit, Progress, verify_all
from outlive.app.operate import reading
from outlive.approvals import Approval
from outlive.errors import Rejected
from outlive.model.approval import ApprovalRow
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.survey import Surveyed
from tests.cli.survey_app import Rows, rows_of, settings
from tests.cli.test_audit import changed
from tests.cli.waiting import reaches

app: Outlive[None] = Outlive()
TWO = Approval(role="finance", quorum=2, expires=timedelta(days=2))


@app.tool(effect="external", approval=TWO)
async def pay(op: Operation[None], cents: int) -> str:
    return f"paid {cents}"


@app.agent()
async def settle(run: Run[None], cents: int) -> str:
    try:
        return await run.call(pay, cents)
    except Rejected as rejected:
        return rejected.reason


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    found: str = request.getfixturevalue("postgres")
    return found


async def only(run: str) -> ApprovalRow:
    [row] = await app.approvals.list(run=run, statuses=())
    return row


@asynccontextmanager
async def written(url: str) -> AsyncIterator[tuple[Surveyed, Rows, dict[str, str]]]:
    """One that was approved with other arguments and used; one rejected; one that waits; one revoked; one withdrawn."""
    await app.open(settings(url))
    async with app:
        desk = app.approvals
        async with app.worker():
            ids = dict[str, str]()
            for run in ("used", "rejected", "waits", "revoked", "withdrawn"):
                await app.start(settle, 400, id=run, principal="rita")
                await reaches(app.opened, run, "waiting")
                ids[run] = (await only(run)).id
            await desk.delegate(ids["used"], who="ada", role="finance", to="dan")
            for who, role in (("dan", ""), ("ben", "finance")):
                await desk.approve(ids["used"], who=who, role=role, arguments={"cents": 300})
            await desk.approve(ids["rejected"], who="ada", role="finance")
            await desk.reject(ids["rejected"], who="ben", role="finance", why="too much")
            for run in ("used", "rejected"):
                await reaches(app.opened, run, "succeeded")
            await desk.approve(ids["waits"], who="ada", role="finance")
            await app.handle(settle, "withdrawn").terminate(who="rita")
        # Nobody drives them any more: what was given stays, and can be taken back.
        for who in ("ada", "ben"):
            await desk.approve(ids["revoked"], who=who, role="finance")
        await desk.revoke(ids["revoked"], who="cem", role="finance", why="not now")
    async with reading(settings(url)) as store:
        with rows_of(url) as rows:
            yield store, rows, ids


async def misfits(store: Surveyed) -> list[Misfit]:
    return [one async for one in verify_all(store, DEFAULT_TENANT, Progress())]


async def named(store: Surveyed) -> set[tuple[str, str]]:
    return {(one.run, one.what) for one in await misfits(store)}


BOUND = "operation shown arguments proposed policy role quorum requester expires_at status votes executed".split()
ASKED = {"used": [*BOUND, "edited"], "rejected": [*BOUND, "why"], "revoked": BOUND, "waits": BOUND, "withdrawn": BOUND}


async def test_what_was_decided_fits(url: str) -> None:
    async with written(url) as (store, _, ids):
        assert await misfits(store) == []
        found = {run: await store.consents(DEFAULT_TENANT, RunId(run)) for run in ids}
        assert {run: one.readings[0].row.status for run, one in found.items()} == {
            "used": "approved", "rejected": "rejected", "waits": "asked", "revoked": "revoked",
            "withdrawn": "withdrawn",
        }  # fmt: skip
        assert not any(one.imported for one in found.values())


async def test_a_byte_of_an_approval(url: str) -> None:
    async with written(url) as (store, rows, ids):
        for run, columns in ASKED.items():
            for column in columns:
                if column == "status":
                    continue
                with changed(rows, "approval", column, f"id = '{ids[run]}'"):
                    assert await named(store) == {(run, f"approval {ids[run]}")}, (run, column)
        assert await misfits(store) == []


async def test_a_status_that_nobody_has_voted_for(url: str) -> None:
    forged = {"used": "rejected", "rejected": "approved", "waits": "approved", "revoked": "approved"}
    async with written(url) as (store, rows, ids):
        for run, status in forged.items():
            ((before,),) = rows("select status from approval where id = ?", ids[run])
            rows("update approval set status = ? where id = ?", status, ids[run])
            assert await named(store) == {(run, f"approval {ids[run]}")}, run
            rows("update approval set status = ? where id = ?", before, ids[run])
        rows("update approval set used_at = null where id = ?", ids["used"])
        [misfit] = await misfits(store)
        assert misfit.why == "used_at: the row says that it was not used, the log that it was"


@pytest.mark.parametrize("column", ["who", "act", "role", "digest"])
async def test_a_vote_that_was_changed(url: str, column: str) -> None:
    to: dict[str, object] = {"who": "rita", "act": "reject", "role": "sales", "digest": "another"}
    async with written(url) as (store, rows, ids):
        for run in ("used", "revoked"):
            where = "approval = ? and who = 'ben'"
            ((before,),) = rows(f"select {column} from vote where {where}", ids[run])
            rows(f"update vote set {column} = ? where {where}", to[column], ids[run])
            assert await named(store) == {(run, f"approval {ids[run]}")}
            rows(f"update vote set {column} = ? where approval = ? and number = {3 if run == 'used' else 2}", before,
                 ids[run])  # fmt: skip
        assert await misfits(store) == []


async def test_a_vote_that_was_put_into_another_mouth(url: str) -> None:
    """By the votes alone anybody may have decided; the log knows who it was."""
    async with written(url) as (store, rows, ids):
        for run, who in (("used", "ben"), ("rejected", "ben")):
            rows("update vote set who = 'eve' where approval = ? and who = ?", ids[run], who)
        found = await misfits(store)
        assert {(one.run, one.what) for one in found} == {(run, f"approval {ids[run]}") for run in ("used", "rejected")}
        assert any("by them dan for ada, eve decided, by the log dan for ada, ben" in one.why for one in found)


async def test_a_vote_that_was_taken_away_or_added(url: str) -> None:
    async with written(url) as (store, rows, ids):
        for run in ("used", "waits"):
            rows("delete from vote where approval = ? and number = 1", ids[run])
        assert await named(store) == {(run, f"approval {ids[run]}") for run in ("used", "waits")}
        added = (
            "insert into vote (tenant, approval, number, who, act, role, place, to_whom, why, digest, edited, nonce,"
            " at) select tenant, approval, 9, 'eve', 'approve', 'finance', '', '', '', digest, edited, '', at from vote"
            " where approval = ? and number = 1"
        )
        # Behind a decision nobody can vote any more.
        for run in ("rejected", "revoked"):
            rows(added, ids[run])
            rows("update approval set votes = votes + 1 where id = ?", ids[run])
            assert (run, f"approval {ids[run]}") in await named(store)


async def test_an_approval_that_was_taken_away_or_made_up(url: str) -> None:
    async with written(url) as (store, rows, ids):
        made_up = (
            "insert into approval (tenant, run_id, id, operation, tool, shown, arguments, proposed, policy, role,"
            " quorum, requester, asked_at, expires_at, status, votes, executed)"
            " select tenant, run_id, 'ap-forged', operation, tool, shown, arguments, proposed, policy, role, quorum,"
            " requester, asked_at, expires_at, 'approved', 0, proposed from approval where id = ?"
        )
        rows(made_up, ids["waits"])
        assert ("waits", "approval ap-forged") in await named(store)
        assert "no entry asks for it" in {one.why for one in await misfits(store)}
        rows("delete from approval where id = 'ap-forged'")
        for run in ("used", "waits"):
            rows("delete from vote where approval = ?", ids[run])
            rows("delete from approval where id = ?", ids[run])
        assert {(one.run, one.what, one.why) for one in await misfits(store)} == {
            (run, f"approval {ids[run]}", "its row is not there") for run in ("used", "waits")
        }
        # A run that was imported came without.
        rows("update run set imported_at = 1")
        assert await misfits(store) == []
