"""The data of the example has the shape that the demo and its documentation promise."""

import json
from collections import Counter
from datetime import date

from examples.dunning.bank_process import ROOT

INVOICES = json.loads((ROOT / "examples/dunning/invoices.json").read_text("utf-8"))


def test_sixty_invoices_in_six_regions() -> None:
    assert [invoice["id"] for invoice in INVOICES] == [f"INV-2026-{n:04d}" for n in range(1, 61)]
    assert sorted(Counter(invoice["region"] for invoice in INVOICES).values()) == [10] * 6
    assert len({invoice["customer"] for invoice in INVOICES}) == 60
    assert all(type(invoice["cents"]) is int and invoice["cents"] > 0 for invoice in INVOICES)
    assert all(date.fromisoformat(invoice["issued"]) < date.fromisoformat(invoice["due"]) for invoice in INVOICES)


def test_one_provider_without_look_up_and_three_declined_cards() -> None:
    assert Counter(invoice["provider"] for invoice in INVOICES) == {"cardnet": 59, "blindpay": 1}
    declined = [invoice for invoice in INVOICES if invoice["card"] == "tok_declined"]
    assert len({invoice["region"] for invoice in declined}) == 3
    assert {invoice["provider"] for invoice in declined} == {"cardnet"}
