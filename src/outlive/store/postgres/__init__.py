"""The store on PostgreSQL: any number of machines."""

from outlive.store.postgres.store import PostgresStore, open_postgres
from outlive.store.postgres.upkeep import upkeep_of

__all__ = ["PostgresStore", "open_postgres", "upkeep_of"]
