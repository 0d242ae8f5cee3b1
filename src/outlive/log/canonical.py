"""One form of a value for its digest, whatever process, hash seed, time zone or spelling it came in.

The value is taken after validation by its annotation. Equal values give equal bytes: keys and sets are sorted, instants
are counted in UTC, decimals carry no trailing zeros, fields equal to their default are left out. Bytes of one version
never change: a change of form is a new version.
"""

from __future__ import annotations

import dataclasses
import json
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quote
from math import isfinite
from pathlib import PurePath
from typing import NamedTuple, cast, get_type_hints
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from outlive.log.mac import mac
from outlive.model.errors import NotSerialisable

VERSION = b"c1:"
Named = frozenset[type]
NOBODY: Named = frozenset()

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIMPLE = (str, int, bool, type(None))
_ABSENT = object()
_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_writers: dict[type, Callable[[object], object]] = {}


class NotDigested:
    """Marks a parameter or field, `Annotated[T, NotDigested]`, that replay and approvals do not compare."""


def canonical(value: object, *, named: Named = NOBODY, where: str = "digest") -> bytes:
    """The versioned canonical form. Classes in `named` are told apart by name, others by their content alone.

    Raises NotSerialisable for NaN, infinities and values that are not data.
    """
    return VERSION + fragment(value, named=named, where=where).encode()


def fragment(value: object, *, named: Named = NOBODY, where: str = "digest") -> str:
    """The canonical form without its version, to be put into a larger one."""
    if type(value) is str:
        return _quote(value)
    try:
        if type(value) is int:
            return str(value)
        return _write(_tree(value, named))
    except RecursionError:
        why = "it contains itself or is nested too deeply"
    except (ValueError, TypeError, PydanticSerializationError) as error:
        why = str(error)
    raise NotSerialisable(what=type(value).__name__, where=where, why=why)


def digest(key: bytes, *parts: bytes) -> str:
    """HMAC-SHA256, in hex, over parts that are framed by their lengths: no two lists of parts share a message."""
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return mac(key, framed).hex()


def _tree(value: object, named: Named) -> object:
    kind = type(value)
    if kind in _SIMPLE:
        return value
    writer = _writers.get(kind)
    if writer is not None:
        return writer(value)
    tree = _compound(value, named)
    return {"$type": kind.__name__, "value": tree} if kind in named else tree


def _compound(value: object, named: Named) -> object:
    if isinstance(value, Enum):
        return _tree(value.value, named)
    if isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return _record(value, named)
    if isinstance(value, Mapping):
        return _mapping(value, named)
    if isinstance(value, Set):
        return {"$set": [json.loads(item) for item in sorted(_write(_tree(item, named)) for item in value)]}
    if isinstance(value, list | tuple):
        return [_tree(item, named) for item in value]
    for base, writer in _writers.items():
        if isinstance(value, base):
            return writer(value)
    return {"$other": to_jsonable_python(value)}


def _mapping(value: Mapping[object, object], named: Named) -> object:
    """An object when all keys are text (those that begin with $ are escaped), sorted pairs otherwise."""
    if all(type(key) is str for key in value):
        return {_escaped(str(key)): _tree(item, named) for key, item in value.items()}
    pairs = sorted((_write(_tree(key, named)), _write(_tree(item, named))) for key, item in value.items())
    return {"$map": [[json.loads(key), json.loads(item)] for key, item in pairs]}


def _escaped(key: str) -> str:
    return "$" + key if key.startswith("$") else key


def _record(value: object, named: Named) -> dict[str, object]:
    tree: dict[str, object] = {}
    for name, default, factory in _fields(cast(Hashable, type(value))):
        held = getattr(value, name, _ABSENT)
        if held is not _ABSENT and not _equal(held, factory() if factory else default, named):
            tree[name] = _tree(held, named)
    extra = value.model_extra if isinstance(value, BaseModel) else None
    for name, held in (extra or {}).items():
        tree[_escaped(name)] = _tree(held, named)
    return tree


def _equal(held: object, default: object, named: Named) -> bool:
    """Equal to the default, not only by `==`: [1] and [True] are two values."""
    if type(held) is not type(default) or held != default:
        return False
    return type(held) in _SIMPLE or _write(_tree(held, named)) == _write(_tree(default, named))


class _Field(NamedTuple):
    name: str
    default: object
    factory: type | None


@lru_cache(maxsize=4096)
def _fields(kind: Hashable) -> tuple[_Field, ...]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return tuple(
            _field(name, _ABSENT if info.is_required() else info.default, info.default_factory)
            for name, info in kind.model_fields.items()
            if not _marked(info.metadata)
        )
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return ()
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        hints = dict(vars(kind).get("__annotations__", {}))
    return tuple(
        _field(f.name, f.default, None if f.default_factory is dataclasses.MISSING else f.default_factory)
        for f in dataclasses.fields(kind)
        if not _marked(getattr(hints.get(f.name), "__metadata__", ()))
    )


def _marked(metadata: Iterable[object]) -> bool:
    return any(item is NotDigested or isinstance(item, NotDigested) for item in metadata)


def _field(name: str, default: object, factory: object) -> _Field:
    """Only a class is trusted as a factory: what others make may differ from call to call."""
    if factory is None:
        return _Field(name, default, None)
    return _Field(name, _ABSENT, factory if isinstance(factory, type) else None)


def _float(value: object) -> object:
    if not isinstance(value, float) or not isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return float(value) + 0.0


def _decimal(value: object) -> object:
    """Sign, digits and exponent; `Decimal.normalize` would round to the precision of the context."""
    if not isinstance(value, Decimal) or not value.is_finite():
        raise ValueError(f"{value} is not a finite number")
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    if not short:
        return {"$decimal": "0"}
    return {"$decimal": f"{'-' if sign else ''}{short}E{int(exponent) + len(text) - len(short)}"}


def _datetime(value: object) -> object:
    if not isinstance(value, datetime):
        raise TypeError(f"{value!r} is not a datetime")
    offset = value.utcoffset()
    if offset is None:
        return {"$local": value.isoformat()}
    return {"$instant": (value.replace(tzinfo=UTC) - _EPOCH - offset) // _MICROSECOND}


def _tagged(tag: str, write: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: {tag: write(value)}


def _base64(value: object) -> object:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{value!r} is not bytes")
    return b64encode(value).decode()


def _iso(value: object) -> object:
    if not isinstance(value, date | time):
        raise TypeError(f"{value!r} is not a date or a time")
    return value.isoformat()


def _span(value: object) -> object:
    if not isinstance(value, timedelta):
        raise TypeError(f"{value!r} is not a timedelta")
    return value // _MICROSECOND


def _whole(value: object) -> object:
    return int(value) if isinstance(value, int) else value


# In the order in which a subclass is looked for: bool before int, datetime before date.
_writers.update(
    {
        bytes: _tagged("$bytes", _base64),
        bytearray: _tagged("$bytes", _base64),
        float: _float,
        Decimal: _decimal,
        datetime: _datetime,
        date: _tagged("$date", _iso),
        time: _tagged("$time", _iso),
        timedelta: _tagged("$span", _span),
        UUID: _tagged("$uuid", str),
        PurePath: _tagged("$path", str),
        str: str,
        int: _whole,
    }
)
