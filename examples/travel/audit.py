"""Holds the ledgers of all providers against the logs of all trips and their rollbacks, line by line. Pure: it is told
everything.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from examples.dunning.watch import Watched
from examples.travel.agent import Trip
from examples.travel.providers import Line
from outlive.model.operation import IN_DOUBT, OperationRow

ORDERS = {"book_hotel": "hotel", "book_flight": "flight", "charge_card": "card"}
UNDOES = {"cancel_hotel": "hotel", "cancel_flight": "flight", "charge_card.compensate": "card"}
PROVIDER = {**ORDERS, **UNDOES}


@dataclass(slots=True)
class Finding:
    """What ledgers and logs say together; `differences` is empty when they agree."""

    trips: int = 0
    undone: int = 0
    orders: Counter[str] = field(default_factory=Counter)
    undos: Counter[str] = field(default_factory=Counter)
    cents: Counter[str] = field(default_factory=Counter)
    doubted: int = 0
    resolved: int = 0
    later: int = 0
    differences: list[str] = field(default_factory=list)


def audit(trips: Sequence[Trip], runs: Mapping[str, Watched], ledgers: Mapping[str, Sequence[Line]]) -> Finding:
    """`runs` has each trip under its id and, if it was undone, what did that under *id*-rollback."""
    finding = Finding(len(trips))
    operations: dict[str, OperationRow] = {one.id: one for run in runs.values() for one in run.operations}
    for provider, lines in ledgers.items():
        known = {one.key: one for one in operations.values() if PROVIDER[one.tool] == provider}
        finding.differences += _of_provider(provider, lines, known, operations)
        finding.orders[provider] = sum(line.side == "order" for line in lines)
        finding.undos[provider] = sum(line.side == "undo" for line in lines)
        finding.cents[provider] = sum(line.cents for line in lines)
    for trip in trips:
        finding.differences += _of_trip(trip, runs, ledgers)
        finding.undone += f"{trip.id}-rollback" in runs
    said = [line for run in runs.values() for line in run.lines]
    finding.doubted = len({str(line.data["operation"]) for line in said if line.kind == "unknown"})
    finding.resolved = len({str(line.data["operation"]) for line in said if line.kind == "resolution"})
    finding.later = sum(line.kind == "completion" for line in said)
    return finding


def _of_provider(
    name: str, lines: Sequence[Line], known: Mapping[str, OperationRow], operations: Mapping[str, OperationRow]
) -> list[str]:
    """Each line has one operation that says it happened, each such operation has one line."""
    found: list[str] = []
    for key, count in Counter(line.key for line in lines).items():
        if count > 1:
            found.append(f"{name}: {count} lines under the key {key}")
    by_key = {line.key: line for line in lines}
    found += [f"{name}: {line.number} of {line.trip} is in no log" for key, line in by_key.items() if key not in known]
    for key, operation in known.items():
        title, line = f"{name}: {operation.tool} {operation.id} of run {operation.run}", by_key.get(key)
        happened = operation.status in ("succeeded", "compensated")
        if operation.status in IN_DOUBT:
            found.append(f"{title} is still {operation.status}")
        elif line is None:
            found += [f"{title} is {operation.status}, the ledger has no line"] if happened else []
        elif not happened:
            found.append(f"{title} is {operation.status}, the ledger has {line.number}")
        elif (said := _said(operation, operations)) != (
            what := (line.side, line.trip, abs(line.cents), line.undoes or line.number)
        ):
            found.append(f"{title}: the log says {said}, the ledger {what}")
    return found


def _said(operation: OperationRow, operations: Mapping[str, OperationRow]) -> tuple[str, str, int, str]:
    """What a line should be: its side, trip and sum, and the number of the order."""
    original = operations[str(operation.compensates)] if operation.compensates else operation
    arguments, number = json.loads(original.arguments), json.loads(original.outcome or "null")
    side = "undo" if operation.compensates else "order"
    return side, str(arguments["trip"]), int(arguments["cents"]), str(number)


def _of_trip(trip: Trip, runs: Mapping[str, Watched], ledgers: Mapping[str, Sequence[Line]]) -> list[str]:
    """A trip is booked and paid as a whole, or nothing is left of it; each once."""
    found: list[str] = []
    row, back = runs[trip.id].row, runs.get(f"{trip.id}-rollback")
    if (row.status, back.row.status if back else "") not in (("succeeded", ""), ("failed", "succeeded")):
        found.append(f"run {trip.id} is {row.status}, its rollback {back.row.status if back else 'not there'}")
    if row.status == "succeeded" and not trip.visa:
        found.append(f"run {trip.id} has succeeded without a visa")
    total = trip.hotel_cents + trip.flight_cents
    wanted = {"hotel": trip.hotel_cents, "flight": trip.flight_cents, "card": total}
    for provider, lines in ledgers.items():
        mine = [line for line in lines if line.trip == trip.id]
        orders = [line.number for line in mine if line.side == "order"]
        if len(orders) > 1:
            found.append(f"{provider}: {trip.id} was booked {len(orders)} times: {', '.join(orders)}")
        undone = [str(line.undoes) for line in mine if line.side == "undo"]
        for number, count in Counter(undone).items():
            if count > 1:
                found.append(f"{provider}: {number} of {trip.id} was undone {count} times")
        rest, due = sum(line.cents for line in mine), 0 if back else wanted[provider]
        if rest != due:
            found.append(f"{provider}: {trip.id} costs {rest}, and should {due}")
    return found
