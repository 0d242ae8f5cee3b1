"""A run as lines of JSON: written by a store that knows its key, and believed only under the same key.

The header says which run and which key; then come the run's row, its entries, operations, messages and divergences; the
last line says how many there were. Each line carries a keyed digest of itself and of the line before, so that a line
that is missing, altered or elsewhere is found where it is. The entries carry their own chain besides.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from outlive.duty.shape import misfit
from outlive.log.entry import Entry, verify
from outlive.model.errors import BadBundle, ChainBroken
from outlive.model.ids import RunId, Tenant, unnamed
from outlive.model.run import Head
from outlive.store.bundles import KINDS, Bundles, Columns, Kind, Part

FORMAT = 1

# What tells rows of a kind apart, where the chain of the log does not.
_NAMED: dict[Kind, tuple[str, ...]] = {
    "operation": ("id",), "message": ("topic", "sender_key"), "divergence": ("code",),
}  # fmt: skip
_MARK, _END = ',"mac":"', '"}'
_MAC_CHARS = 64
_write = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Header:
    """The first line. `key` is the tenant's digest key, where it was asked for; `key_id` tells keys apart."""

    tenant: Tenant
    run: RunId
    key_id: str
    key: bytes | None = None


def key_id(secret: bytes) -> str:
    """What tells keys apart, and says nothing about them: keys are drawn at random."""
    return hmac.new(secret, b"bundle key", "sha256").hexdigest()[:16]


async def written(
    store: Bundles, tenant: Tenant, run: RunId, secret: bytes, *, with_key: bool = False
) -> AsyncIterator[str]:
    """The lines of a bundle, as of one moment. Raises UnknownRun, and ChainBroken for a log that does not fit."""
    header: dict[str, object] = {
        "bundle": "outlive", "format": FORMAT, "tenant": tenant, "run": run, "key_id": key_id(secret),
    }  # fmt: skip
    if with_key:
        header["key"] = secret.hex()
    last, count, log = b"", 1, _Chain(secret, run)
    line, last = _sealed(secret, last, header)
    async for kind, row in store.parts(tenant, run):
        log.check(kind, row)
        yield line
        count += 1
        line, last = _sealed(secret, last, {"kind": kind, "row": row})
    log.ended()
    yield line
    yield _sealed(secret, last, {"kind": "end", "lines": count + 1})[0]


class Bundle:
    """A bundle to be read: its header now, its parts once, under the key that its reader trusts."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        """Raises BadBundle for what is no header of a bundle."""
        self._lines = iter(lines)
        self._first = next(self._lines, b"")
        body, self._mac = _split(self._first, 1)
        if body.get("bundle") != "outlive":
            raise BadBundle(line=1, why="it is not the header of a bundle")
        if body.get("format") != FORMAT:
            raise BadBundle(line=1, why=f"its format is {body.get('format')!r}, this release reads {FORMAT}")
        try:
            key = bytes.fromhex(str(body["key"])) if "key" in body else None
            self.header = Header(Tenant(str(body["tenant"])), RunId(str(body["run"])), str(body["key_id"]), key)
        except (KeyError, ValueError):
            raise BadBundle(line=1, why="it is not the header of a bundle") from None
        if wrong := unnamed("tenant", body["tenant"]) or unnamed("run", body["run"]):
            raise BadBundle(line=1, why=wrong)

    def parts(self, secret: bytes) -> Iterator[Part]:
        """The row, then all that belongs to it. Raises BadBundle at the first line that is not what was written.

        Only when it has been read to its end is the bundle known to be whole.
        """
        number, last = 1, _checked(secret, b"", self._first, self._mac, 1)
        log, ended, known = _Chain(secret, self.header.run), False, set[tuple[str, ...]]()
        for number, line in enumerate(self._lines, start=2):
            if ended:
                raise BadBundle(line=number, why="it is behind the end")
            body, mac = _split(line, number)
            last = _checked(secret, last, line, mac, number)
            if body.get("kind") == "end":
                if body.get("lines") != number:
                    raise BadBundle(line=number, why=f"there should be {body.get('lines')} lines")
                ended = True
                continue
            kind, row = _part(body, number)
            if kind == "run" and row["id"] != self.header.run:
                raise BadBundle(line=number, why="it is not the run that the header names")
            try:
                log.check(kind, row)
            except ChainBroken as broken:
                raise BadBundle(line=number, why=f"entry {broken.seq} does not fit the chain of the log") from None
            if kind in _NAMED:
                named = (kind, *(str(row[name]) for name in _NAMED[kind]))
                if named in known:
                    raise BadBundle(
                        line=number, why=f"there is a {kind} of this name before it: {', '.join(named[1:])}"
                    )
                known.add(named)
            yield kind, row
        if not ended:
            raise BadBundle(line=number + 1, why="the bundle is cut off: its end is not there")
        try:
            log.ended()
        except ChainBroken as broken:
            raise BadBundle(line=number, why=f"entry {broken.seq} of the log is not there") from None


class _Chain:
    """Follows a log through the parts of a bundle: each entry has to fit the one before, and the last one the row."""

    def __init__(self, secret: bytes, run: str) -> None:
        self._secret, self._run = secret, run
        self._head, self._end = Head(0, b""), Head(-1, b"")
        self._at = -1

    def check(self, kind: Kind, row: Columns) -> None:
        """Raises ChainBroken."""
        place = KINDS.index(kind)
        if (self._at < 0) != (kind == "run") or place < self._at:
            raise ChainBroken(run=self._run, seq=self._head.seq)
        self._at = place
        if kind == "run":
            self._end = Head(int(row["next_seq"] or 0), bytes.fromhex(str(row["head"])))
        elif kind == "entry":
            entry = _entry(row)
            if entry.seq != self._head.seq:
                raise ChainBroken(run=self._run, seq=self._head.seq)
            self._head = verify(self._secret, self._run, [entry], self._head.digest)

    def ended(self) -> None:
        """Raises ChainBroken where the log does not end as its row says."""
        if self._head != self._end:
            raise ChainBroken(run=self._run, seq=self._head.seq)


def _entry(row: Columns) -> Entry:
    return Entry(
        int(row["seq"] or 0), int(row["epoch"] or 0), str(row["kind"]), int(row["version"] or 0), int(row["at"] or 0),
        str(row["scope"]), str(row["key"]), str(row["body"]), cast("str | None", row["payload"]),
        cast("str | None", row["blob"]), str(row["data_class"]), str(row["key_id"]),
        bytes.fromhex(str(row["digest"])),
    )  # fmt: skip


def _part(body: dict[str, object], number: int) -> Part:
    kind, row = next((one for one in KINDS if one == body.get("kind")), None), body.get("row")
    if kind is None or not isinstance(row, dict):
        raise BadBundle(line=number, why=f"it is no part of a run: {body.get('kind')!r}")
    if wrong := misfit(kind, row):
        raise BadBundle(line=number, why=wrong)
    return kind, cast("Columns", row)


def _sealed(secret: bytes, before: bytes, body: dict[str, object]) -> tuple[str, bytes]:
    text = _write(body)
    mac = hmac.digest(secret, before + text.encode(), "sha256")
    return f"{text[:-1]}{_MARK}{mac.hex()}{_END}\n", mac


def _checked(secret: bytes, before: bytes, line: bytes, mac: str, number: int) -> bytes:
    """The digest that the next line goes on from. Raises BadBundle."""
    text = line.rstrip(b"\r\n")[: -len(_MARK) - _MAC_CHARS - len(_END)] + b"}"
    expected = hmac.digest(secret, before + text, "sha256")
    if not hmac.compare_digest(expected.hex(), mac):
        raise BadBundle(line=number, why="it is not what was written, or not where it was")
    return expected


def _split(line: bytes, number: int) -> tuple[dict[str, object], str]:
    """What a line says, and its digest."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        raise BadBundle(line=number, why="it is no JSON: the bundle is cut off or damaged") from None
    mac = body.pop("mac", None) if isinstance(body, dict) else None
    if not isinstance(mac, str) or not line.rstrip(b"\r\n").endswith(f"{_MARK}{mac}{_END}".encode()):
        raise BadBundle(line=number, why="it has no digest at its end")
    return body, mac
