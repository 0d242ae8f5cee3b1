"""The PostgreSQL server of the tests: the one that OUTLIVE_TEST_POSTGRES names, or one of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from outlive.testing import postgres
from outlive.testing.postgres import make_cluster, own_folder, running, tied, unprivileged, url_of

__all__ = ["make_cluster", "own_folder", "running", "server", "tied", "unprivileged", "url_of"]


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server; ours runs only inside. A server that cannot be had is an error, never a skipped test."""
    if given := os.environ.get("OUTLIVE_TEST_POSTGRES"):
        yield given
        return
    with postgres.server() as url:
        yield url
