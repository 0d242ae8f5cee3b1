"""The stores that the lab is swept on."""

import pytest


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """*sqlite*, or for *postgres* the URL of the server of the tests: as a lab takes it."""
    if request.param == "sqlite":
        return "sqlite"
    # Statements are prepared, as a direct connection to the server allows.
    return f"{request.getfixturevalue('postgres_server')}&direct=yes"
