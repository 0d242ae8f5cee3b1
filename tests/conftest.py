"""A PostgreSQL server for the run of tests, and for each test a schema of its own; which tests are about deaths."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from tests.store.postgres_server import server

# How long an example takes says more about the machine than about the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

_NUMBERS = itertools.count(1)

_HERE = Path(__file__).parent
_ABOUT_DEATHS = frozenset(("baddays", "conformance", "forks", "gate", "kills", "small", "sweep", "travel"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests about deaths are marked. They begin first: a file of them that begins last keeps one core waiting."""
    for item in items:
        if item.path.relative_to(_HERE).parts[0] in _ABOUT_DEATHS:
            item.add_marker("deaths")
    items.sort(key=lambda item: item.get_closest_marker("deaths") is None)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of the server."""
    with server() as url:
        yield url


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """A URL with a schema of its own, which SQL without a schema finds too; dropped after the test."""
    schema = f"outlive_test_{next(_NUMBERS)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"drop schema if exists {schema} cascade".encode())
        yield f"{postgres_server}&schema={schema}&options=-csearch_path%3D{schema}"
        connection.execute(f"drop schema if exists {schema} cascade".encode())
