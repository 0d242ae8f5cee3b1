"""The store with faults: it covers the whole port, and each fault does what it says."""

import inspect
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlive.errors import CommitUnknown, LeaseLost, Refused, StoreUnavailable
from outlive.log.kinds import Emitted, draft
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import Head, NewRun
from outlive.store import port
from outlive.store.port import Append, Claim, Claimed
from outlive.testing import Died, Fault, FaultyStore, ManualClock, faults
from outlive.testing.direct import DirectStore
from outlive.testing.faults import FaultKind

RUN = RunId("r")


def methods(protocol: type) -> dict[str, inspect.Signature]:
    found = inspect.getmembers(protocol, inspect.isfunction)
    return {name: inspect.signature(function) for name, function in found if not name.startswith("_")}


def test_it_covers_the_port() -> None:
    ours = methods(FaultyStore)
    for name, signature in methods(port.Store).items():
        assert name in ours, f"{name} is not delegated"
        assert list(ours[name].parameters) == list(signature.parameters), name
        assert name in FaultyStore.__dict__


@pytest.mark.parametrize(
    ("kind", "at", "method", "later", "why"),
    [
        ("afterr", 6, "append", 0, "the kinds are before, die, after, lost"),
        ("after", 6, "apend", 0, "no method of that name; it has again, alike, announce"),
        ("after", 0, "append", 0, "counted from 1"),
        ("lost", 1, "window", 0, "only the answer to a write"),
        ("lost", 1, "append", -1, "0 or more"),
        ("die", 1, "append", None, "`later` is for a lost answer"),
    ],
)
def test_what_can_never_happen_is_refused(kind: FaultKind, at: int, method: str, later: int | None, why: str) -> None:
    with pytest.raises(Refused, match=why):
        Fault(kind, at, method, later)


def test_every_method_that_is_counted_can_be_named() -> None:
    counted = set(re.findall(r'(?:_call|_enter)\(\s*"([\w.]+)"', inspect.getsource(faults)))
    assert counted == set(faults.METHODS)
    assert counted >= faults.WRITES


@asynccontextmanager
async def opened(path: Path, *planned: Fault) -> AsyncIterator[tuple[FaultyStore, DirectStore, Claimed]]:
    """A store with one run, claimed; faults count from there."""
    inner = DirectStore(path / "faulty.db", clock=ManualClock())
    await inner.open()
    await inner.start(NewRun(DEFAULT_TENANT, RUN, "clerk", "1", "{}", "d"))
    [claimed] = await inner.claim(Claim(Owner("anna"), {"clerk": "b"}, 1, 30_000))
    yield FaultyStore(inner, planned), inner, claimed
    await inner.close()


def said(claimed: Claimed, name: str = "said") -> Append:
    return Append(claimed.authority, claimed.row.head, (draft(Emitted(name=name), at=0),))


async def names(store: DirectStore) -> list[str]:
    return [entry.kind for entry in await store.entries(DEFAULT_TENANT, RUN)]


async def test_before(tmp_path: Path) -> None:
    async with opened(tmp_path, Fault("before", 2)) as (store, inner, claimed):
        await store.unread(DEFAULT_TENANT, RUN)
        with pytest.raises(StoreUnavailable):
            await store.append(said(claimed))
        assert "emitted" not in await names(inner)
        await store.append(said(claimed))
        assert (await names(inner)).count("emitted") == 1
        assert [made.method for made in store.made] == ["unread", "append", "append"]


@pytest.mark.parametrize(("kind", "stored"), [("die", 0), ("after", 1)])
async def test_death(tmp_path: Path, kind: str, stored: int) -> None:
    fault = Fault("die" if kind == "die" else "after", 1, "append")
    async with opened(tmp_path, fault) as (store, inner, claimed):
        await store.now()
        with pytest.raises(Died):
            await store.append(said(claimed))
        assert (await names(inner)).count("emitted") == stored
        with pytest.raises(Died):
            await store.now()
        with pytest.raises(Died):
            async with store.transaction():
                pass


@pytest.mark.parametrize(("later", "stored"), [(0, 1), (None, 0)])
async def test_lost(tmp_path: Path, later: int | None, stored: int) -> None:
    async with opened(tmp_path, Fault("lost", 1, "append", later)) as (store, inner, claimed):
        with pytest.raises(CommitUnknown):
            await store.append(said(claimed))
        assert (await names(inner)).count("emitted") == stored
        assert await store.deliver() == []


async def test_lost_and_delivered_later(tmp_path: Path) -> None:
    async with opened(tmp_path, Fault("lost", 1, "append", 2)) as (store, inner, claimed):
        with pytest.raises(CommitUnknown):
            await store.append(said(claimed))
        await store.now()
        assert "emitted" not in await names(inner)
        await store.now()
        assert (await names(inner)).count("emitted") == 1


async def test_lost_and_delivered_too_late(tmp_path: Path) -> None:
    async with opened(tmp_path, Fault("lost", 1, "append", 9)) as (store, inner, claimed):
        with pytest.raises(CommitUnknown):
            await store.append(said(claimed))
        again = await store.again(claimed.authority, owner=Owner("anna"), lease_ms=30_000)
        assert again is not None
        assert await store.deliver() == [LeaseLost.__name__]
        assert "emitted" not in await names(inner)


async def test_a_transaction_whose_answer_is_lost_is_over(tmp_path: Path) -> None:
    for number, (later, stored) in enumerate([(0, 1), (None, 0)]):
        place = tmp_path / str(number)
        place.mkdir()
        async with opened(place, Fault("lost", 1, "transaction.append", later)) as (store, inner, claimed):
            async with store.transaction() as transaction:
                await transaction.execute("create table t (x)")
                with pytest.raises(CommitUnknown):
                    await transaction.append(said(claimed))
                assert await store.again(claimed.authority, owner=Owner("anna"), lease_ms=30_000) is not None
            assert (await names(inner)).count("emitted") == stored


async def test_a_store_without_threads_refuses_what_the_store_refuses(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, inner, claimed):
        with pytest.raises(LeaseLost):
            await inner.append(Append(claimed.authority, Head(99, b""), ()))
        await inner.append(said(claimed))
        assert (await names(inner)).count("emitted") == 1
