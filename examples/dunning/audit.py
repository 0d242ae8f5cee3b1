"""Holds the bank's ledger against the logs of all runs, operation by operation. Pure: it is told everything."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from examples.dunning.agent import LARGE_CENTS, Invoice, Receipt
from examples.dunning.watch import Watched
from examples.dunning.witness import Effect
from outlive.app.inspect import Line
from outlive.model.operation import OperationRow


@dataclass(frozen=True, slots=True)
class Finding:
    """What ledger and logs say together; `differences` is empty when they agree."""

    invoices: int
    effects: int
    declined: int
    duplicates: int
    lost: int
    doubted: int
    looked_up: int
    resolved: int
    approved: int
    rejected: int
    differences: list[str]


def audit(invoices: Sequence[Invoice], runs: Mapping[str, Watched], effects: Sequence[Effect]) -> Finding:
    operations = [one for run in runs.values() for one in run.operations]
    by_key: dict[str, list[Effect]] = {}
    for effect in effects:
        by_key.setdefault(effect.key, []).append(effect)
    differences = [
        f"run {id} is {run.row.status} {run.row.detail}" for id, run in runs.items() if run.row.status != "succeeded"
    ]
    lines = [line for run in runs.values() for line in run.lines]
    decided = {str(line.data["approval"]): line.data["decision"] for line in lines if line.kind == "decided"}
    for operation in operations:
        differences += _agreed(operation, decided)
        differences += _compared(operation, by_key.pop(operation.key, []))
    for strays in by_key.values():
        differences += [f"the bank has {one.charge_id} for {one.invoice}, which is in no log" for one in strays]
    answered = {invoice_of(one) for one in operations if one.status in ("succeeded", "raised")}
    rejected = {_proposed(line) for line in lines if line.kind == "proposed" and _rejected(line, decided)}
    missing = [one.id for one in invoices if one.id not in answered | rejected]
    differences += [f"{id} was neither charged nor declined" for id in missing]
    return Finding(
        invoices=len(invoices),
        effects=len(effects),
        declined=sum(one.status == "raised" for one in operations),
        duplicates=sum(count - 1 for count in Counter(one.invoice for one in effects).values()),
        lost=len(missing) + sum("has no charge" in one for one in differences),
        doubted=len({str(line.data["operation"]) for line in lines if line.kind == "unknown"}),
        looked_up=sum(one.how == "lookup" for one in operations),
        resolved=len({str(line.data["operation"]) for line in lines if line.kind == "resolution"}),
        approved=sum(decision == "approved" for decision in decided.values()),
        rejected=len(rejected),
        differences=differences,
    )


def invoice_of(operation: OperationRow) -> str:
    return str(json.loads(operation.arguments)["invoice"])


def _proposed(line: Line) -> str:
    return str(json.loads(line.payload or "{}")["invoice"])


def _rejected(line: Line, decided: Mapping[str, object]) -> bool:
    return decided.get(str(line.data["approval"])) == "rejected"


def _agreed(operation: OperationRow, decided: Mapping[str, object]) -> list[str]:
    """Whether somebody has agreed to what nobody may charge without."""
    large = operation.status == "succeeded" and json.loads(operation.arguments).get("cents", 0) > LARGE_CENTS
    if not large or decided.get(operation.approval) == "approved":
        return []
    return [f"{invoice_of(operation)} ({operation.id}): charged, and nobody has approved it"]


def _compared(operation: OperationRow, effects: Sequence[Effect]) -> list[str]:
    """Where the log's word about one operation and the effects under its key differ."""
    name = f"{invoice_of(operation)} ({operation.id})"
    if operation.status != "succeeded":
        found = [f"{name}: the log says {operation.status}, the bank has {one.charge_id}" for one in effects]
        doubt = operation.status in ("pending", "unknown")
        return found or ([f"{name}: still {operation.status}"] if doubt else [])
    receipt = Receipt.model_validate_json(operation.outcome or "null")
    if not effects:
        return [f"{name}: the log says {receipt.charge_id}, the bank has no charge"]
    said = (receipt.charge_id, invoice_of(operation), receipt.cents)
    first, *others = [(one.charge_id, one.invoice, one.cents) for one in effects]
    wrong = [] if first == said else [f"{name}: the log says {said}, the bank has {first}"]
    return wrong + [f"{name}: charged again as {one[0]}" for one in others]
