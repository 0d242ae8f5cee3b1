"""An entry is one fact in a log. This file seals drafts into entries: seq, keyed digest, chain, payloads to blobs.

Invariant: the digest of an entry covers all of its stored fields and the digest of the one before, under the tenant's
key; a payload over 32 KiB is covered through the keyed digest of its blob. Sealed text can be stored by any database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlive.log.mac import mac
from outlive.model.errors import ChainBroken, NotSerialisable
from outlive.model.run import Head

BLOB_BYTES = 32 * 1024

_TEXT = ("kind", "scope", "key", "body", "payload", "data_class", "key_id")


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry before it has a place: `body` holds its small facts as JSON, `payload` a value as JSON or None."""

    kind: str
    version: int
    at: int
    scope: str
    key: str
    body: str
    payload: str | None = None
    data_class: str = ""
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry in its place. `payload` is None because there is none; or, as sealed, because `blob` names where it is.

    As read from a store, an entry with `blob` has its payload too: without it, the payload is `lost`.
    """

    seq: int
    epoch: int
    kind: str
    version: int
    at: int
    scope: str
    key: str
    body: str
    payload: str | None
    blob: str | None
    data_class: str
    key_id: str
    digest: bytes

    @property
    def lost(self) -> bool:
        """Whether there was a payload and it is not here."""
        return self.blob is not None and self.payload is None


@dataclass(frozen=True, slots=True)
class Sealed:
    """Entries ready to be stored, the blobs they need, and where the log ends after them."""

    entries: tuple[Entry, ...]
    blobs: tuple[tuple[str, str], ...]
    head: Head


def seal(secret: bytes, head: Head, epoch: int, drafts: Sequence[Draft]) -> Sealed:
    """Give drafts their seq and digests after `head`. Pure: the same input gives the same bytes.

    Raises NotSerialisable for text that no database takes.
    """
    entries: list[Entry] = []
    blobs: list[tuple[str, str]] = []
    seq, last = head.seq, head.digest
    for draft in drafts:
        _check_text(seq, draft)
        payload, blob = draft.payload, None
        if payload is not None and len(payload) * 4 > BLOB_BYTES and len(payload.encode()) > BLOB_BYTES:
            blob = blob_address(secret, payload)
            blobs.append((blob, payload))
            payload = None
        last = _digest(
            secret, last,
            (
                str(seq), str(epoch), draft.kind, str(draft.version), str(draft.at), draft.scope, draft.key, draft.body,
                "-" if payload is None else "+" + payload, blob or "", draft.data_class, draft.key_id,
            ),
        )  # fmt: skip
        entries.append(
            Entry(
                seq, epoch, draft.kind, draft.version, draft.at, draft.scope, draft.key, draft.body, payload, blob,
                draft.data_class, draft.key_id, last,
            )
        )  # fmt: skip
        seq += 1
    return Sealed(tuple(entries), tuple(blobs), Head(seq, last))


def blob_address(secret: bytes, payload: str) -> str:
    """The keyed digest by which a blob is stored once. Keyed, so that an erased payload cannot be guessed back."""
    return mac(secret, b"blob\0" + payload.encode()).hex()


def link(secret: bytes, before: bytes, entry: Entry) -> bytes:
    """The digest of `entry` placed after an entry with digest `before`."""
    fields = (
        str(entry.seq), str(entry.epoch), entry.kind, str(entry.version), str(entry.at), entry.scope, entry.key,
        entry.body, "-" if entry.payload is None or entry.blob else "+" + entry.payload, entry.blob or "",
        entry.data_class, entry.key_id,
    )  # fmt: skip
    return _digest(secret, before, fields)


def _digest(secret: bytes, before: bytes, fields: Sequence[str]) -> bytes:
    # Each field is framed by its length, so that no two different entries give the same bytes.
    framed = "".join([f"{len(field)}:{field}" for field in fields])
    return mac(secret, before + framed.encode())


def verify(secret: bytes, run: str, entries: Sequence[Entry], before: bytes = b"") -> Head:
    """Check a stretch of log that follows digest `before`.

    Raises ChainBroken with the first entry that does not fit, or whose payload is lost.
    """
    expected = entries[0].seq if entries else 0
    for entry in entries:
        if entry.seq != expected or entry.digest != link(secret, before, entry):
            raise ChainBroken(run=run, seq=entry.seq)
        if entry.blob and (entry.payload is None or blob_address(secret, entry.payload) != entry.blob):
            raise ChainBroken(run=run, seq=entry.seq)
        before, expected = entry.digest, expected + 1
    return Head(expected, before)


def _check_text(seq: int, draft: Draft) -> None:
    texts = (
        draft.kind, draft.scope, draft.key, draft.body, draft.payload or "", draft.data_class, draft.key_id,
    )  # fmt: skip
    for name, value in zip(_TEXT, texts, strict=True):
        # ASCII knows itself; a long text is not encoded once more for nothing.
        if "\0" in value or not (value.isascii() or _encodes(value)):
            why = "it has a NUL character" if "\0" in value else "it has half of a surrogate pair"
            raise NotSerialisable(what=f"its {name}", where=f"entry {seq} of kind {draft.kind!r}", why=why)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
