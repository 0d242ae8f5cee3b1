"""The ledger: a file of its own that knows nothing of runs. Who is told to book twice has a key to tell it by."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Account = Literal["machines", "office", "services", "transport"]


@dataclass(frozen=True)
class Entry:
    """A line of the ledger."""

    number: int
    invoice: str
    vendor: str
    cents: int
    account: Account


class Ledger:
    """Whoever books says a key, and what has one is booked once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with self._opened() as ledger:
            ledger.execute("pragma journal_mode = wal")
            ledger.execute(
                "create table if not exists entry (number integer primary key, key text unique not null,"
                " invoice text not null, vendor text not null, cents integer not null, account text not null)"
            )

    def book(self, key: str, invoice: str, vendor: str, cents: int, account: Account) -> Entry:
        """A new line, or the one that this key has made."""
        with self._opened() as ledger:
            ledger.execute(
                "insert into entry (key, invoice, vendor, cents, account) values (?, ?, ?, ?, ?)"
                " on conflict do nothing",
                (key, invoice, vendor, cents, account),
            )
            (row,) = ledger.execute(f"{_SELECT} where key = ?", (key,))
            return Entry(*row)

    def entries(self) -> list[Entry]:
        """Every line, in order."""
        with self._opened() as ledger:
            return [Entry(*row) for row in ledger.execute(f"{_SELECT} order by number")]

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Committed at the end."""
        with closing(sqlite3.connect(self._file, timeout=20)) as connection, connection:
            yield connection


_SELECT = "select number, invoice, vendor, cents, account from entry"
