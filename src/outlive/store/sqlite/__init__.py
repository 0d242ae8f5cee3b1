"""The store on one machine: a SQLite file that several processes of the machine may share."""

from outlive.store.sqlite.migrate import examine
from outlive.store.sqlite.store import SQLiteStore, open_sqlite

__all__ = ["SQLiteStore", "examine", "open_sqlite"]
