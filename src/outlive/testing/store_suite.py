"""The store suite: what every adapter of the store port must do, as plain coroutines without a test framework.

An adapter's tests take each of `CASES` and run `await run_case(case, open_store)` on an empty database, where
`open_store(clock)` opens that database: again at each call, as another process would. A case fails by AssertionError.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from outlive.testing import (
    store_cases_approvals,
    store_cases_bundles,
    store_cases_fork,
    store_cases_keeping,
    store_cases_keys,
    store_cases_lease,
    store_cases_log,
    store_cases_queue,
    store_cases_records,
    store_cases_rollback,
    store_cases_streaming,
    store_cases_telling,
    store_cases_versions,
)
from outlive.testing.store_scene import OpenStore, Scene

Case = Callable[[Scene], Awaitable[None]]

_MODULES = (
    store_cases_log,
    store_cases_queue,
    store_cases_lease,
    store_cases_records,
    store_cases_versions,
    store_cases_approvals,
    store_cases_telling,
    store_cases_fork,
    store_cases_streaming,
    store_cases_keeping,
    store_cases_bundles,
    store_cases_rollback,
    store_cases_keys,
)

CASES: tuple[Case, ...] = tuple(case for module in _MODULES for case in module.CASES)


async def run_case(case: Case, open_store: OpenStore) -> None:
    """Run one case and close what it opened, also when it fails."""
    scene = await Scene.set(open_store)
    try:
        await case(scene)
    finally:
        await scene.close()
