"""What graphs remember across threads, beside what LangGraph's own store in memory answers to the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, ListNamespacesOp, Op, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from outlive.errors import BadArguments, NotSerialisable, Refused
from outlive.langgraph import OutliveStore


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OutliveStore]:
    url = f"sqlite:///{tmp_path}/graphs.db" if request.param == "sqlite" else request.getfixturevalue("postgres")
    with OutliveStore(url) as one:
        yield one


def filled(store: BaseStore) -> BaseStore:
    for number in range(5):
        store.put(("users", "anna", "notes"), f"n{number}", {"number": number, "of": {"kind": "note", "at": [1, 2]}})
    store.put(("users", "anna"), "name", {"text": "Anna"})
    store.put(("users", "anna-bella", "notes"), "n0", {"number": 0})
    store.put(("users", "bert", "notes"), "n0", {"number": 7})
    store.put(("shops", "bert"), "a.b/%", {"text": "half \\u0000 and 'quotes'"})
    store.put(("users", "bert", "notes"), "n0", {"number": 8})
    store.delete(("users", "anna", "notes"), "n4")
    return store


def shown(found: Any) -> set[tuple[tuple[str, ...], str, str]]:
    return {(one.namespace, one.key, str(one.value)) for one in found}


@pytest.mark.parametrize("prefix", [(), ("users",), ("users", "anna"), ("users", "anna", "notes"), ("none",)])
@pytest.mark.parametrize(
    "filter", [None, {"number": 0}, {"of": {"kind": "note"}}, {"of": {"at": [1, 2]}}, {"of": {"at": [1]}},
               {"number": {"$ne": 0}}, {"text": {"$eq": "Anna"}}],
)  # fmt: skip
def test_searches_find_what_memory_finds(store: OutliveStore, prefix: tuple[str, ...], filter: Any) -> None:
    theirs = filled(InMemoryStore()).search(prefix, filter=filter, limit=100)
    assert shown(filled(store).search(prefix, filter=filter, limit=100)) == shown(theirs)
    assert len(store.search(prefix, filter=filter, limit=2, offset=1)) == max(0, min(2, len(theirs) - 1))


def _without_nul(store: OutliveStore) -> OutliveStore:
    return store


@pytest.mark.parametrize("filter", [{"$gt": 1}, {"$gte": 1, "$lt": 3}, {"$lte": 0}, {"$lt": 1.5}])
def test_comparisons_find_what_memory_finds(store: OutliveStore, filter: Any) -> None:
    prefix = ("users", "anna", "notes")
    theirs = filled(InMemoryStore()).search(prefix, filter={"number": filter}, limit=100)
    assert shown(filled(store).search(prefix, filter={"number": filter}, limit=100)) == shown(theirs) != set()
    # Where a value has no such key their store in memory raises; here it does not fit.
    assert len(store.search((), filter={"none": filter})) == 0
    with pytest.raises(Refused, match=r"\$like in a filter"):
        store.search(prefix, filter={"number": {"$like": "x"}})


@pytest.mark.parametrize(
    "asked",
    [
        {}, {"prefix": ("users",)}, {"suffix": ("notes",)}, {"prefix": ("users", "*", "notes")}, {"max_depth": 2},
        {"max_depth": 1, "prefix": ("users",)}, {"limit": 1, "offset": 1}, {"prefix": ("a", "b", "c", "d")},
    ],
)  # fmt: skip
def test_namespaces_are_what_memory_has(store: OutliveStore, asked: Any) -> None:
    assert filled(store).list_namespaces(**asked) == filled(InMemoryStore()).list_namespaces(**asked)


def test_a_batch_reads_before_it_writes(store: OutliveStore) -> None:
    store.put(("a",), "k", {"was": 1})
    ops: list[Any] = [PutOp(("a",), "k", {"is": 2}), GetOp(("a",), "k"), SearchOp(("a",)), ListNamespacesOp()]
    item: Any
    _, item, found, namespaces = store.batch(ops)
    assert item.value == {"was": 1}
    assert shown(found) == {(("a",), "k", "{'was': 1}")} and namespaces == [("a",)]
    again = store.get(("a",), "k")
    assert again is not None and again.value == {"is": 2} and again.created_at < again.updated_at


async def test_it_can_be_awaited(store: OutliveStore) -> None:
    await store.aput(("a",), "k", {"x": 1})
    item = await store.aget(("a",), "k")
    assert item is not None and item.value == {"x": 1}
    await store.adelete(("a",), "k")
    assert await store.aget(("a",), "k") is None and await store.asearch(()) == []


def test_an_item_whose_time_is_over_is_gone(store: OutliveStore) -> None:
    store.put(("a",), "short", {"x": 1}, ttl=0.0)
    store.put(("a",), "long", {"x": 1}, ttl=60)
    assert store.get(("a",), "short") is None and store.get(("a",), "long") is not None
    assert [one.key for one in store.search(("a",))] == ["long"]


def test_what_it_cannot_do_is_refused(store: OutliveStore) -> None:
    with pytest.raises(Refused, match="no index of meanings"):
        store.search(("a",), query="alike")
    with pytest.raises(NotSerialisable):
        store.put(("a",), "k", {"x": object()})
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("a.b",), "k", {})])


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
def test_names_that_cannot_be_stored_are_an_error_of_who_says_them(store: OutliveStore, odd: str) -> None:
    """Not that of a store which cannot be reached: that would be tried again."""
    ops: list[Op] = [PutOp(("users",), odd, {}), GetOp(("users",), odd)]
    for op in ops:
        with pytest.raises(BadArguments, match="which cannot be stored"):
            store.batch([op])
    ops = [PutOp((odd,), "name", {}), GetOp((odd,), "name"), SearchOp((odd,))]
    for op in ops:
        with pytest.raises((BadArguments, InvalidNamespaceError)):
            store.batch([op])
