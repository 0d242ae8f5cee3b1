"""The demo's judgement can fail: each way in which a ledger and the logs can differ is found. And the demo itself."""

import subprocess
import sys
from dataclasses import replace

import pytest

from examples.dunning.agent import Invoice
from examples.dunning.audit import Finding, audit
from examples.dunning.watch import TENANT, Watched
from examples.dunning.witness import Effect
from outlive.model.ids import OperationId, RunId
from outlive.model.operation import OperationRow
from outlive.model.run import Head, RunRow
from tests.kills.scene import ROOT

INVOICE = Invoice(id="INV-1", customer="Karoo Wind Pumps", region="africa", cents=900, provider="cardnet", card="tok")
EFFECT = Effect(charge_id="ch_1", key="k1", invoice="INV-1", cents=900)
ROW = RunRow(TENANT, RunId("africa"), "dunning", "1", "succeeded", 1, Head(1, b""), 0, 0, "", RunId("africa"))
CHARGED = OperationRow(
    TENANT, RunId("africa"), OperationId("op-1"), "charge", "charge", "external", "k1", "", '{"invoice": "INV-1"}',
    "succeeded", 1, 1, 0, 0, outcome='{"charge_id": "ch_1", "cents": 900}',
)  # fmt: skip


def judged(operations: list[OperationRow], effects: list[Effect], row: RunRow = ROW) -> Finding:
    return audit([INVOICE], {"africa": Watched(row, [], operations)}, effects)


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


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--store", "postgres")], ids=" ".join)
def test_the_demo(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "examples.dunning.demo", "--seed", "5", *options]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert "ledger and logs agree" in played.stdout
    assert played.stdout.count("killed between act and record") >= 2
