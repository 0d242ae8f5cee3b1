"""The store on PostgreSQL: any number of machines."""

from outlive.store.postgres.store import PostgresStore, open_postgres

__all__ = ["PostgresStore", "open_postgres"]
