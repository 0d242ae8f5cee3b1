"""The clerk of the example: what is large waits for somebody, what they say is booked, and nothing twice."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from examples.clerk.app import INVOICES, Desk, Report, app, book_invoices
from examples.clerk.finance import decide
from examples.clerk.ledger import Ledger
from outlive.model.approval import ApprovalRow
from outlive.testing import lab

ROOT = Path(__file__).parents[2]
PROMPT = "Book what has come in."


def booked(ledger: Ledger) -> dict[str, tuple[int, str]]:
    entries = ledger.entries()
    found: dict[str, tuple[int, str]] = {one.invoice: (one.cents, one.account) for one in entries}
    assert len(found) == len(entries), f"an invoice is in the ledger twice: {entries}"
    return found


def desk(directory: Path) -> Desk:
    return Desk(INVOICES, Ledger(directory / "ledger.db"))


async def test_what_is_large_waits_and_what_somebody_says_is_booked(tmp_path: Path) -> None:
    here = desk(tmp_path)
    async with lab(app, deps=here) as t:
        run = await t.start(book_invoices, PROMPT)
        await t.advance(days=1)
        assert await t.status(run) == "waiting"
        assert booked(here.ledger) == {"88-1207": (189_00, "services")}
        assert await decide(t._desk(), print) == 3
        report = await run.result()
    assert report == Report(booked=["NL-2041", "88-1207", "K-5530", "PF-612"], not_booked=["BD-0007"])
    assert booked(here.ledger) == {
        "88-1207": (189_00, "services"), "K-5530": (9_310_00, "machines"), "PF-612": (1_365_00, "transport"),
        "NL-2041": (330_50, "office"),
    }  # fmt: skip


async def test_what_nobody_decides_about_is_not_booked(tmp_path: Path) -> None:
    here = desk(tmp_path)
    async with lab(app, deps=here) as t:
        run = await t.start(book_invoices, PROMPT)
        await t.advance(days=8)
        assert (await run.result()).not_booked == ["K-5530", "BD-0007", "PF-612"]
    assert set(booked(here.ledger)) == {"88-1207", "NL-2041"}


async def test_another_run_books_nothing_again(tmp_path: Path) -> None:
    here = desk(tmp_path)
    async with lab(app, deps=here) as t:
        for _ in range(2):
            run = await t.start(book_invoices, PROMPT)
            await t.advance(days=1)
            await decide(t._desk(), print)
            await run.result()
    assert len(booked(here.ledger)) == 4


@pytest.mark.deaths
async def test_wherever_its_workers_die_each_invoice_is_booked_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    here = desk(tmp_path)
    async with lab(app, deps=here) as t:
        t.approver = refusing
        report = await t.sweep(book_invoices, PROMPT, every=31)
    assert set(report.ends) == {"succeeded"}
    assert set(booked(here.ledger)) == {"88-1207", "K-5530", "PF-612", "NL-2041"}


def refusing(row: ApprovalRow) -> Literal["approve", "reject"]:
    return "reject" if "BD-0007" in row.arguments else "approve"


@pytest.mark.deaths
def test_the_demo() -> None:
    command = [sys.executable, "-m", "examples.clerk.demo"]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert played.stdout.count("a worker was killed") == 3
    assert "each is booked once" in played.stdout
