"""The judgement over trips can fail: each way in which ledgers and logs can differ is found."""

from dataclasses import replace

import pytest

from examples.dunning.watch import TENANT, Watched
from examples.travel.agent import Trip
from examples.travel.audit import audit
from examples.travel.office import decide
from examples.travel.providers import Line
from outlive.model.ids import OperationId, RunId
from outlive.model.operation import OperationRow
from outlive.model.run import Head, RunRow

TRIP = Trip(id="t", hotel_cents=1, flight_cents=2, fare="basic", visa=False)
ROW = RunRow(TENANT, RunId("t"), "travelling", "1", "failed", 1, Head(1, b""), 0, 0, "", RunId("t"))
BACK = replace(ROW, id=RunId("t-rollback"), status="succeeded", rolls_back=RunId("t"))


def booked(tool: str, number: str, cents: int) -> OperationRow:
    return OperationRow(
        TENANT, RunId("t"), OperationId(f"op-{tool}"), tool, tool, "external", f"key-{tool}", "",
        f'{{"trip": "t", "cents": {cents}}}', "compensated", 1, 1, 0, 0, outcome=f'"{number}"',
    )  # fmt: skip


def undone(tool: str, original: OperationRow) -> OperationRow:
    return OperationRow(
        TENANT, RunId("t-rollback"), OperationId(f"op-{tool}"), tool, tool, "external", f"key-{tool}", "", "{}",
        "succeeded", 1, 1, 0, 0, compensates=original.id,
    )  # fmt: skip


ORDERS = [booked("book_hotel", "hotel-1", 1), booked("book_flight", "flight-1", 2), booked("charge_card", "card-1", 3)]
BY = ("cancel_hotel", "cancel_flight", "charge_card.compensate")
UNDOES = [undone(tool, of) for tool, of in zip(BY, ORDERS, strict=True)]


def lines(name: str, place: int) -> list[Line]:
    cents = place + 1
    order = Line(number=f"{name}-1", side="order", key=ORDERS[place].key, trip="t", what="it", cents=cents)
    undo = Line(number=f"{name}-2", side="undo", key=UNDOES[place].key, trip="t", what="it", cents=-cents)
    return [order, undo.model_copy(update={"undoes": order.number})]


LEDGERS = {name: lines(name, place) for place, name in enumerate(("hotel", "flight", "card"))}


def judged(
    orders: list[OperationRow], undoes: list[OperationRow], ledgers: dict[str, list[Line]], row: RunRow = ROW
) -> str:
    runs = {"t": Watched(row, [], orders), "t-rollback": Watched(BACK, [], undoes)}
    return "\n".join(audit([TRIP], runs, ledgers).differences)


def test_agreement() -> None:
    assert judged(ORDERS, UNDOES, LEDGERS) == ""


def changed(name: str, place: int, **values: object) -> dict[str, list[Line]]:
    line = LEDGERS[name][place].model_copy(update=values)
    return {**LEDGERS, name: [*LEDGERS[name][:place], line, *LEDGERS[name][place + 1 :]]}


@pytest.mark.parametrize(
    ("ledgers", "says"),
    [
        ({**LEDGERS, "hotel": []}, "book_hotel op-book_hotel of run t is compensated, the ledger has no line"),
        ({**LEDGERS, "card": LEDGERS["card"][:1]}, "of run t-rollback is succeeded, the ledger has no line"),
        ({**LEDGERS, "card": [*LEDGERS["card"], LEDGERS["card"][0]]}, "2 lines under the key key-charge_card"),
        (changed("card", 0, key="another"), "card-1 of t is in no log"),
        (
            changed("card", 0, cents=4),
            "the log says ('order', 't', 3, 'card-1'), the ledger ('order', 't', 4",
        ),
        (changed("flight", 1, undoes="flight-9"), "the ledger ('undo', 't', 2, 'flight-9')"),
        (
            {**LEDGERS, "hotel": [*LEDGERS["hotel"], LEDGERS["hotel"][0].model_copy(update={"number": "hotel-3"})]},
            "hotel: t was booked 2 times: hotel-1, hotel-3",
        ),
        (
            {**LEDGERS, "hotel": [*LEDGERS["hotel"], LEDGERS["hotel"][1].model_copy(update={"number": "hotel-3"})]},
            "hotel-1 of t was undone 2 times",
        ),
        ({**LEDGERS, "card": LEDGERS["card"][:1]}, "card: t costs 3, and should 0"),
    ],
)
def test_difference_of_a_ledger(ledgers: dict[str, list[Line]], says: str) -> None:
    assert says in judged(ORDERS, UNDOES, ledgers)


def test_difference_of_a_log() -> None:
    doubtful = [*ORDERS[:2], replace(ORDERS[2], status="unknown")]
    assert "charge_card op-charge_card of run t is still unknown" in judged(doubtful, UNDOES, LEDGERS)
    denied = [*ORDERS[:2], replace(ORDERS[2], status="failed")]
    assert "is failed, the ledger has card-1" in judged(denied, UNDOES, LEDGERS)
    stuck = replace(ROW, status="blocked")
    assert "run t is blocked, its rollback succeeded" in judged(ORDERS, UNDOES, LEDGERS, stuck)


def test_what_a_person_says_is_what_the_books_say() -> None:
    operation = replace(ORDERS[2], status="unknown")
    assert "happened --outcome '\"card-1\"'" in str(decide(operation, LEDGERS["card"][0]))
    assert "did-not-happen" in str(decide(operation, None))
    assert "--outcome" not in str(decide(UNDOES[2], LEDGERS["card"][1]))
