"""Values of channels as shapes, pieces and chains: what is the same is stored once, and a list that grows only grows.

The digest of a piece is keyed and made of the plain bytes; what is stored may be encrypted. See `store.graphs.named`
for what a shape is.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from outlive.log.canonical import digest
from outlive.store.graphs import Batch, Chain, Piece

Shape = list[Any]
# A value of few bytes stands in its shape; a list of few elements is written out. What is smaller in all is one piece.
_INLINE, _SHORT, _SMALL = 128, 8, 256
# How deep dicts are taken apart, from how many common links on a chain is worth sharing, and how long a line of bases.
_DEEP, _SHARED, _BASES = 3, 32, 64
_KEPT = 3
# From how many bytes on a piece is compressed, and how its kind begins then.
_PRESSED, _ZLIB = 256, "zlib:"


@dataclass(frozen=True, slots=True)
class Head:
    """A chain as it was last seen: the digests of all its links, and how many bases are below it."""

    chain: str
    digests: list[str]
    bases: int = 0


@dataclass(slots=True)
class Heads:
    """Which chains lists of a thread can go on from, by the place of the list; `known` is when that held."""

    known: str
    by_path: dict[str, list[Head]] = field(default_factory=dict)

    def add(self, path: str, head: Head) -> None:
        """The last one seen comes first; a few are kept, for what a task wrote and what the channel has."""
        others = [one for one in self.by_path.get(path, []) if one.chain != head.chain]
        self.by_path[path] = [head, *others][:_KEPT]


class Shaper:
    """Makes the shapes of one batch. `grown` is what `heads` will be when the batch has been committed."""

    def __init__(
        self, serde: SerializerProtocol, key: bytes, heads: Heads | None, token: Callable[[], str]
    ) -> None:  # fmt: skip
        self.batch = Batch(known=heads.known if heads is not None else None)
        self.grown: list[tuple[str, Head]] = []
        self._heads: Mapping[str, list[Head]] = heads.by_path if heads is not None else {}
        self._serde, self._key, self._token = serde, key, token
        self._cipher = serde.cipher if isinstance(serde, EncryptedSerializer) else None
        self._plain = serde.serde if isinstance(serde, EncryptedSerializer) else serde

    def shape(self, value: object, path: str) -> str:
        """The shape of a value, as JSON. `path` is where lists of the same place are found again."""
        return json.dumps(self._shape(value, path, 0), separators=(",", ":"))

    def _shape(self, value: object, path: str, depth: int) -> Shape:
        if type(value) is list and value:
            return self._list(value, path)
        kind, body = self._plain.dumps_typed(value)
        # The keys of a dict stand in its shape: not where values are encrypted.
        if len(body) > _SMALL and depth < _DEEP and self._cipher is None and type(value) is dict and _has_names(value):
            return ["d", {key: self._shape(one, f"{path}/{key}", depth + 1) for key, one in value.items()}]
        return self._leaf(kind, bytes(body))

    def _list(self, value: list[object], path: str) -> Shape:
        parts = [self._plain.dumps_typed(one) for one in value]
        if sum(len(body) for _, body in parts) <= _SMALL:
            kind, body = self._plain.dumps_typed(value)
            return self._leaf(kind, bytes(body))
        if len(value) <= _SHORT:
            return ["l", [self._leaf(kind, bytes(body)) for kind, body in parts]]
        return self._chain([self._piece(kind, bytes(body)) for kind, body in parts], path)

    def _leaf(self, kind: str, body: bytes) -> Shape:
        if len(body) > _INLINE:
            return ["p", self._piece(kind, body)]
        sealed = self._seal(kind, body)
        return ["b", sealed.kind, base64.b64encode(sealed.body).decode()]

    def _piece(self, kind: str, body: bytes) -> str:
        named = digest(self._key, b"graph", kind.encode(), body)[:32]
        if named not in self.batch.pieces:
            self.batch.pieces[named] = self._seal(kind, body)
        return named

    def _seal(self, kind: str, body: bytes) -> Piece:
        if len(body) > _PRESSED and len(pressed := zlib.compress(body)) < 0.9 * len(body):
            kind, body = f"{_ZLIB}{kind}", pressed
        if self._cipher is None:
            return Piece(kind, body)
        name, sealed = self._cipher.encrypt(body)
        return Piece(f"{kind}+{name}", sealed)

    def _chain(self, digests: list[str], path: str) -> Shape:
        ours = [head for place, head in self.grown if place == path]
        best, common = None, 0
        for head in [*reversed(ours), *self._heads.get(path, ())]:
            shared = _common(head.digests, digests)
            if shared > common:
                best, common = head, shared
        for one in digests[:common]:
            # It is there, or it is in this batch already for another value.
            if best is not None and best not in ours:
                self.batch.pieces.pop(one, None)
        if best is not None and common == len(digests):
            return ["c", best.chain, common]
        if best is not None and common == len(best.digests):
            return self._grow(Chain(best.chain, None, 0, common, tuple(digests[common:])), path, digests, best.bases)
        if best is not None and common >= _SHARED and best.bases < _BASES:
            chain = Chain(self._token()[:16], best.chain, common, common, tuple(digests[common:]))
            return self._grow(chain, path, digests, best.bases + 1)
        return self._grow(Chain(self._token()[:16], None, 0, 0, tuple(digests)), path, digests, 0)

    def _grow(self, chain: Chain, path: str, digests: list[str], bases: int) -> Shape:
        self.batch.chains.append(chain)
        self.grown.append((path, Head(chain.id, digests, bases)))
        return ["c", chain.id, len(digests)]


def _has_names(value: dict[object, object]) -> bool:
    return all(type(key) is str for key in value)


def _common(one: list[str], other: list[str]) -> int:
    """How many elements two lists have in common at their beginning."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(place for place in range(most) if one[place] != other[place])


def joined(
    shape: str, serde: SerializerProtocol, pieces: Mapping[str, Piece], links: Mapping[tuple[str, int], list[str]]
) -> Any:  # fmt: skip
    """The value of a shape. Raises KeyError for a piece or chain that is not there."""

    def read(one: Shape) -> Any:
        match one:
            case ["p", digest]:
                return load(digest)
            case ["c", chain, length]:
                return [load(digest) for digest in links[chain, length]]
            case ["l", parts]:
                return [read(part) for part in parts]
            case ["d", parts]:
                return {key: read(part) for key, part in parts.items()}
            case ["b", kind, text]:
                return serde.loads_typed((kind, base64.b64decode(text)))
            case _:
                raise KeyError(str(one))

    def load(digest: str) -> Any:
        kind, body = pieces[digest].kind, bytes(pieces[digest].body)
        if not kind.startswith(_ZLIB):
            return serde.loads_typed((kind, body))
        kind = kind.removeprefix(_ZLIB)
        if isinstance(serde, EncryptedSerializer):
            kind, _, cipher = kind.rpartition("+")
            return serde.serde.loads_typed((kind, zlib.decompress(serde.cipher.decrypt(cipher, body))))
        return serde.loads_typed((kind, zlib.decompress(body)))

    return read(json.loads(shape))


def chains_in(shape: str, path: str) -> Iterator[tuple[str, str, int]]:
    """The lists of a shape that are chains: where they are, which chain, and how much of it."""
    yield from _chains(json.loads(shape), path)


def _chains(shape: Shape, path: str) -> Iterator[tuple[str, str, int]]:
    if shape[0] == "c":
        yield path, shape[1], shape[2]
    elif shape[0] == "d":
        for key, one in shape[1].items():
            yield from _chains(one, f"{path}/{key}")
