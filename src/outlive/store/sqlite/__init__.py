"""The store on one machine: a SQLite file that several processes of the machine may share."""

from outlive.store.sqlite.store import SQLiteStore, open_sqlite
from outlive.store.sqlite.upkeep import upkeep_of

__all__ = ["SQLiteStore", "open_sqlite", "upkeep_of"]
