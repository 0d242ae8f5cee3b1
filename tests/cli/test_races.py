"""A run is claimed by another between a person's control claim and its append: nothing escapes, nothing is lost."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from outlive import errors
from outlive.app import operate
from outlive.cli import codes
from outlive.engine import inbox
from outlive.engine.control import Control
from outlive.engine.worker import owner_name
from outlive.model.clock import SystemClock
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId, Tenant
from outlive.model.run import Status
from outlive.store.port import Claimed, Message, Store
from tests.cli.conftest import Cli


class Raced:
    """A store in which somebody else seizes each run right after it was seized."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def seize(
        self, tenant: Tenant, run: RunId, *, owner: Owner, lease_ms: int, only: frozenset[Status] | None = None,
        unless_live: bool = False, now: int | None = None,
    ) -> Claimed | None:  # fmt: skip
        found = await self._store.seize(
            tenant, run, owner=owner, lease_ms=lease_ms, only=only, unless_live=unless_live, now=now
        )
        await self._store.seize(tenant, run, owner=Owner("w-other"), lease_ms=lease_ms, now=now)
        return found


@pytest.fixture
def operation(cli: Cli) -> str:
    """The operation in doubt of the blocked run `r1`."""
    assert cli("run", "buy", "5", "--id", "r1").exit_code == codes.BLOCKED
    return str(json.loads(cli("show", "r1", "--json").stdout)["operations"][0]["id"])


def raced(act: Callable[[Store], Awaitable[object]]) -> int:
    """Act on the store of this directory while somebody else is faster; how many messages are unread after it."""

    async def go() -> int:
        async with operate.reading(operate.settings_of(None)) as store:
            await act(cast(Store, Raced(store)))
            return len(await store.unread(DEFAULT_TENANT, RunId("r1")))

    return asyncio.run(go())


def test_a_decision_waits_in_the_inbox_for_who_was_faster(operation: str) -> None:
    def decide(store: Store) -> Awaitable[object]:
        return operate.resolve(store, None, "default", "r1", operation, "abandon", who="ada", why="written off")

    assert raced(decide) == 1


def test_a_retry_that_was_not_recorded_says_so(operation: str) -> None:
    assert operation
    with pytest.raises(errors.LeaseLost, match="run r1 is not ours any more"):
        raced(lambda store: operate.retry(store, "default", "r1", who="ada", why=""))


@pytest.mark.parametrize("verb", ["expire", "take_in"])
def test_a_worker_that_attends_to_a_run_survives_another_that_was_faster(operation: str, verb: str) -> None:
    assert operation
    clock = SystemClock()

    async def attend(store: Store) -> None:
        await store.post(Message(DEFAULT_TENANT, RunId("r1"), inbox.EVIDENCE, "k", '{"operation":"op-none"}'))
        act: Callable[[Tenant, RunId], Awaitable[object]] = getattr(Control(store, clock, owner_name(clock)), verb)
        await act(DEFAULT_TENANT, RunId("r1"))

    with pytest.raises(errors.LeaseLost):
        raced(attend)
