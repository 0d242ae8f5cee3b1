"""The Claude Agent SDK's own conformance tests of stores, on both stores, with every optional method there."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from claude_agent_sdk import SessionStore
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk.testing import session_store_conformance as suite

from outlive.claude import OutliveSessionStore


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    postgres = request.param == "postgres"
    return str(request.getfixturevalue("postgres")) if postgres else f"sqlite:///{tmp_path}/claude.db"


@pytest.fixture
async def made(url: str) -> AsyncIterator[list[OutliveSessionStore]]:
    stores: list[OutliveSessionStore] = []
    yield stores
    for store in stores:
        store.close()


async def test_all_14_contracts_hold_and_none_is_skipped(
    url: str, made: list[OutliveSessionStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> OutliveSessionStore:
        # Each contract gets a store of its own: one tenant each, which also says that tenants do not see each other.
        made.append(OutliveSessionStore(url, tenant=f"contract-{len(made)}"))
        return made[-1]

    optional = {"list_sessions", "list_session_summaries", "delete", "list_subkeys"}
    assert {name for name in vars(SessionStore) if inspect.iscoroutinefunction(getattr(SessionStore, name))} == (
        optional | {"append", "load"}
    ), "the protocol has a method that is not asked for"
    asked: set[str] = set()
    has = suite._has_optional

    def counted(store: SessionStore, method: str, skipped: frozenset[str]) -> bool:
        asked.add(method)
        assert has(store, method, skipped), f"{method} would be skipped"
        return True

    monkeypatch.setattr(suite, "_has_optional", counted)
    await run_session_store_conformance(make)
    assert asked == optional
    assert len(made) == 15, "the suite has another number of contracts than 14"
