"""The stores over which workers are killed."""

import pytest


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """The URL for a scene: empty is a file of its own, for *postgres* it is a schema on the server of the tests."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres"))
