"""`OutliveStore`: LangGraph's store of what graphs remember across threads, on our store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from outlive.app.given import check_texts
from outlive.app.outlive import Outlive
from outlive.app.sync import Client
from outlive.model.errors import NotSerialisable, Refused
from outlive.model.ids import Tenant
from outlive.store.items import ItemRow, Items, NewItem

_PAGE = 200


class OutliveStore(BaseStore):
    """Values by namespace and key: `builder.compile(store=OutliveStore("sqlite:///graphs.db"))`.

    `store` is a URL, or an application, whose store it opens a second time, at the first use; `close` ends that. Values
    are JSON. The reads of a batch see what was there before its writes, and these are one commit. `ttl` says how long
    items live by default. There is no index of meanings: a search with a `query` is Refused.
    """

    supports_ttl = True

    def __init__(self, store: str | Outlive[Any], *, tenant: str = "default", ttl: TTLConfig | None = None) -> None:
        self._client = Client(Outlive(store) if isinstance(store, str) else store)
        self._tenant = Tenant(tenant)
        self.ttl_config = ttl

    def close(self) -> None:
        """End what the first use began. The next use begins it again."""
        self._client.close()

    def __enter__(self) -> OutliveStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do them; a result for each, in order."""
        return self._client.submit(self._batch(_checked(ops))).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`."""
        return await asyncio.wrap_future(self._client.submit(self._batch(_checked(ops))))

    async def _batch(self, ops: list[Op]) -> list[Result]:
        store = self._items()
        results: list[Result] = []
        puts: dict[tuple[str, str], NewItem] = {}
        read: list[ItemRow] = []
        for op in ops:
            if isinstance(op, PutOp):
                puts[_prefix(op.namespace), op.key] = _new(op)
                results.append(None)
            elif isinstance(op, GetOp):
                row = await store.item(self._tenant, _prefix(op.namespace), op.key)
                results.append(_item(row) if row is not None else None)
                read += [row] if row is not None and op.refresh_ttl else []
            elif isinstance(op, SearchOp):
                rows = await self._search(store, op)
                results.append([_found(row) for row in rows])
                read += rows if op.refresh_ttl else []
            else:
                results.append(await self._namespaces(store, op))
        if lasting := [row for row in read if row.ttl_ms is not None]:
            await store.refresh_items(self._tenant, lasting)
        if puts:
            await store.put_items(self._tenant, list(puts.values()))
        return results

    async def _search(self, store: Items, op: SearchOp) -> list[ItemRow]:
        prefix, wanted = _prefix(op.namespace_prefix), op.offset + op.limit
        if not op.filter:
            return await store.items_below(self._tenant, prefix, offset=op.offset, limit=op.limit)
        found: list[ItemRow] = []
        at = 0
        while len(found) < wanted:
            page = await store.items_below(self._tenant, prefix, offset=at, limit=_PAGE)
            found += [row for row in page if _fits(json.loads(row.value), op.filter)]
            at += len(page)
            if len(page) < _PAGE:
                break
        return found[op.offset : wanted]

    async def _namespaces(self, store: Items, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        every = [tuple(prefix.split(".")) for prefix in await store.item_prefixes(self._tenant)]
        found = [one for one in every if all(_matches(condition, one) for condition in op.match_conditions or ())]
        short = sorted({one[: op.max_depth] for one in found})
        return short[op.offset : op.offset + op.limit]

    def _items(self) -> Items:
        store = self._client.app.opened
        if not isinstance(store, Items):
            raise Refused(what="a store of graphs on this store", why="it keeps no items")
        return store


def _checked(ops: Iterable[Op]) -> list[Op]:
    listed = list(ops)
    for op in listed:
        validate_op_namespace(op)
        check_texts("a store of graphs", _texts(op))
        if isinstance(op, SearchOp) and op.query:
            raise Refused(what="a search by meaning", why="this store has no index of meanings; filter by values")
        if isinstance(op, SearchOp) and (op.offset < 0 or op.limit < 0):
            raise Refused(what="a search from or up to a negative number", why="it counts from 0")
    return listed


def _texts(op: Op) -> list[tuple[str, str]]:
    """What names items in an operation."""
    if isinstance(op, ListNamespacesOp):
        return []  # they are compared here
    names = op.namespace_prefix if isinstance(op, SearchOp) else op.namespace
    return [*(("namespace", name) for name in names), *([] if isinstance(op, SearchOp) else [("key", op.key)])]


def _new(op: PutOp) -> NewItem:
    ttl = None if op.ttl is None else round(op.ttl * 60_000)
    if op.value is None:
        return NewItem(_prefix(op.namespace), op.key, None, ttl)
    try:
        text = json.dumps(op.value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise NotSerialisable(what=f"the value at {op.key!r}", where=_prefix(op.namespace), why=str(error)) from error
    return NewItem(_prefix(op.namespace), op.key, text, ttl)


def _prefix(namespace: tuple[str, ...]) -> str:
    return ".".join(namespace)


def _fields(row: ItemRow) -> dict[str, Any]:
    made, changed = (datetime.fromtimestamp(one / 1000, UTC) for one in (row.created_at, row.updated_at))
    return {
        "namespace": tuple(row.prefix.split(".")), "key": row.key, "value": json.loads(row.value),
        "created_at": made, "updated_at": changed,
    }  # fmt: skip


def _item(row: ItemRow) -> Item:
    return Item(**_fields(row))


def _found(row: ItemRow) -> SearchItem:
    return SearchItem(**_fields(row))


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return len(part) == len(path) and all(asked in ("*", label) for asked, label in zip(path, part, strict=True))


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value has what a filter says: dicts by their keys, lists element by element, and comparisons."""
    if isinstance(wanted, dict):
        if any(key.startswith("$") for key in wanted):
            return all(_compares(value, sign, other) for sign, other in wanted.items())
        return isinstance(value, dict) and all(_fits(value.get(key), one) for key, one in wanted.items())
    if isinstance(wanted, list | tuple):
        fits = isinstance(value, list) and len(value) == len(wanted)
        return fits and all(_fits(one, other) for one, other in zip(value, wanted, strict=True))
    return bool(value == wanted)


def _compares(value: Any, sign: str, other: Any) -> bool:
    match sign:
        case "$eq":
            return bool(value == other)
        case "$ne":
            return bool(value != other)
        case "$gt" | "$gte" | "$lt" | "$lte":
            if value is None:
                return False
            low, high = (float(other), float(value)) if sign.startswith("$g") else (float(value), float(other))
            return low <= high if sign.endswith("e") else low < high
        case _:
            raise Refused(what=f"{sign} in a filter", why="there are $eq, $ne, $gt, $gte, $lt and $lte")
