"""The demo's judgement can fail: each way in which a ledger and the logs can differ is found. And the demo itself."""

import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from examples.dunning.agent import Invoice
from examples.dunning.audit import Finding, audit
from examples.dunning.desk import WAIT_S, Desk
from examples.dunning.watch import TENANT, Watched
from examples.dunning.witness import Effect
from outlive.app.approvals import approvals_in
from outlive.app.inspect import Line
from outlive.model.clock import SystemClock
from outlive.model.ids import OperationId, RunId
from outlive.model.operation import OperationRow
from outlive.model.run import Head, RunRow
from tests.kills.consent_scene import approve, asked, start, worker
from tests.kills.scene import ROOT, SQLITE_FIRST, scene

INVOICE = Invoice(id="INV-1", customer="Karoo Wind Pumps", region="africa", cents=900, provider="cardnet", card="tok")
EFFECT = Effect(charge_id="ch_1", key="k1", invoice="INV-1", cents=900)
ROW = RunRow(TENANT, RunId("africa"), "dunning", "1", "succeeded", 1, Head(1, b""), 0, 0, "", RunId("africa"))
CHARGED = OperationRow(
    TENANT, RunId("africa"), OperationId("op-1"), "charge", "charge", "external", "k1", "", '{"invoice": "INV-1"}',
    "succeeded", 1, 1, 0, 0, outcome='{"charge_id": "ch_1", "cents": 900}',
)  # fmt: skip


LARGE = replace(CHARGED, arguments='{"invoice": "INV-1", "cents": 250001}', approval="ap-1")


def judged(
    operations: list[OperationRow], effects: list[Effect], row: RunRow = ROW, lines: list[Line] | None = None
) -> Finding:
    return audit([INVOICE], {"africa": Watched(row, lines or [], operations)}, effects)


def consent(kind: str, **data: object) -> Line:
    return Line(1, 0, 1, kind, "", "", "plain", {"approval": "ap-1", **data}, '{"invoice": "INV-1"}')


def test_agreement() -> None:
    finding = judged([CHARGED], [EFFECT])
    assert (finding.effects, finding.duplicates, finding.lost, finding.differences) == (1, 0, 0, [])


@pytest.mark.parametrize(
    ("operations", "effects", "row", "says"),
    [
        ([CHARGED], [], ROW, "the bank has no charge"),
        ([CHARGED], [EFFECT, EFFECT.model_copy(update={"charge_id": "ch_2"})], ROW, "charged again as ch_2"),
        ([CHARGED], [EFFECT.model_copy(update={"cents": 1})], ROW, "the bank has ('ch_1', 'INV-1', 1)"),
        ([CHARGED], [EFFECT, EFFECT.model_copy(update={"key": "k2"})], ROW, "which is in no log"),
        ([replace(CHARGED, status="raised")], [EFFECT], ROW, "the log says raised"),
        ([replace(CHARGED, status="unknown")], [], ROW, "still unknown"),
        ([], [], ROW, "neither charged nor declined"),
        ([LARGE], [EFFECT], ROW, "nobody has approved it"),
        ([CHARGED], [EFFECT], replace(ROW, status="blocked"), "run africa is blocked"),
    ],
)
def test_difference(operations: list[OperationRow], effects: list[Effect], row: RunRow, says: str) -> None:
    finding = judged(operations, effects, row)
    assert any(says in one for one in finding.differences), finding.differences


def test_duplicates_and_losses_are_counted() -> None:
    assert judged([CHARGED], [EFFECT, EFFECT.model_copy(update={"charge_id": "ch_2"})]).duplicates == 1
    assert judged([CHARGED], []).lost == 1
    assert judged([], []).lost == 1


def test_approvals_are_counted_and_a_rejected_invoice_is_not_lost() -> None:
    agreed = judged([LARGE], [EFFECT], lines=[consent("proposed"), consent("decided", decision="approved")])
    assert (agreed.approved, agreed.rejected, agreed.differences) == (1, 0, [])
    refused = [consent("proposed"), consent("decided", decision="rejected")]
    finding = judged([], [], lines=refused)
    assert (finding.approved, finding.rejected, finding.lost, finding.differences) == (0, 1, 0, [])
    assert "nobody has approved it" in str(judged([LARGE], [EFFECT], lines=refused).differences)


@SQLITE_FIRST
async def test_an_approval_is_shown_and_given_unless_somebody_is_faster(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        worker(here)
        rows = {}
        for invoice in ("slow", "fast"):
            await start(here, "checked", invoice)
            rows[invoice] = await asked(here, invoice)
        runs = [Watched(await here.row(invoice)) for invoice in rows]
        shown = io.StringIO()
        desk = Desk(approvals_in(here.store, SystemClock(), TENANT, None, None), Console(file=shown), here.environment)
        for moment in (0.0, WAIT_S - 0.1):
            await desk.look(runs, moment)
        assert [f"approve {rows[invoice].id} --who" in shown.getvalue() for invoice in rows] == [True, True]
        assert "is approved" not in shown.getvalue()
        await approve(here, rows["fast"], who="ada")
        await desk.look(runs, WAIT_S)
        assert f"approval {rows['slow'].id} of checked" in shown.getvalue()
        assert shown.getvalue().count("is approved") == 1
        for invoice, who in (("slow", "rosa@finance"), ("fast", "ada")):
            found = await here.store.approval(TENANT, rows[invoice].id)
            assert found is not None
            assert [vote.who for vote in found.votes] == [who]


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--store", "postgres")], ids=" ".join)
def test_the_demo(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "examples.dunning.demo", "--seed", "5", *options]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert "ledger and logs agree" in played.stdout
    assert played.stdout.count("killed between act and record") >= 2
    assert "outlive approve ap-" in played.stdout
    assert re.search(r"approved by a person +│ 1 ", played.stdout)
