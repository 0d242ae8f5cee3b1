"""What tests of approvals among real processes share: workers that pay after one, and what runs wait for."""

from outlive import Handle
from outlive.app.approvals import approvals_in
from outlive.app.audit import Progress, verify_all
from outlive.model.approval import ApprovalFilter, ApprovalRow, Reading
from outlive.model.clock import SystemClock
from outlive.store.keeping import Kept
from tests.kills.consents import Payment, app, consenting
from tests.kills.scene import TENANT, Scene, Worker
from tests.kills.waiting import until


def worker(here: Scene, **environment: str) -> Worker:
    return here.process("outlive", "worker", "tests.kills.consents:app", **environment)


async def start(here: Scene, tool: str, invoice: str) -> Handle[str]:
    app.use(here.store)
    return await app.start(consenting, Payment(tool=tool, invoice=invoice), id=invoice)


async def asked(here: Scene, run: str, *, times: int = 1) -> ApprovalRow:
    """The approval that a run waits for, the so manieth that it has asked for."""

    async def look() -> ApprovalRow | None:
        rows = await of(here, run)
        waits = (await here.row(run)).status == "waiting"
        return rows[-1] if waits and len(rows) == times and rows[-1].open else None

    return await until(look, f"run {run} waits for its approval {times}", within=60)


async def of(here: Scene, run: str) -> list[ApprovalRow]:
    return await here.store.approvals(TENANT, ApprovalFilter(statuses=(), run=run))


async def reading(here: Scene, row: ApprovalRow) -> Reading:
    found = await here.store.approval(TENANT, row.id)
    assert found is not None
    return found


async def approve(here: Scene, row: ApprovalRow, who: str = "ada", role: str = "finance") -> None:
    desk = approvals_in(here.store, SystemClock(), TENANT, None, None)
    await desk.approve(row.id, who=who, role=role)


async def fits(here: Scene) -> None:
    """Every log is whole, and what stands beside it follows from it: approvals and votes too."""
    assert isinstance(here.store, Kept)
    assert [one async for one in verify_all(here.store, TENANT, Progress())] == []
