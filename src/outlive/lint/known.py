"""What is known of an expression: which object it is, or of which type. Nothing of the user's is run to find out.

Types are annotations, as their authors wrote them. Where two things are possible nothing is known.
"""

from __future__ import annotations

import collections.abc
import inspect
import typing
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from types import FunctionType, GenericAlias, MethodType, ModuleType, NoneType, UnionType
from typing import Annotated, Union, get_args, get_origin, get_type_hints

from outlive.lint.names import Names
from outlive.lint.rules import GIVES


class Nothing(Enum):
    """Stands where nothing is known: None is a value."""

    HERE = "here"


ABSENT = Nothing.HERE

# More of them around one function are none that a person wrote.
_DECORATORS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """`live` is the object itself, `kind` an annotation of it, `dotted` what others call it.

    `shared`: it belongs to a module or a class, so to every run of the worker. `unordered`: a dict in the order of a
    set.
    """

    live: object = ABSENT
    kind: object = ABSENT
    dotted: str = ""
    shared: bool = False
    unordered: bool = False
    of: Known | None = None
    """Of a method, whose it is."""
    reads: object = None
    """Of a property, what runs when it is read."""

    @property
    def cls(self) -> type | None:
        """Of which class it is an instance."""
        if self.live is not ABSENT:
            return None if isinstance(self.live, type | ModuleType) else type(self.live)
        kind = plain(self.kind)
        found = get_origin(kind) or kind
        return found if isinstance(found, type) else None

    @property
    def arguments(self) -> tuple[object, ...]:
        """The parameters of its type: `(str, int)` of a `dict[str, int]`."""
        return get_args(plain(self.kind))

    def same(self, other: Known) -> bool:
        """Whether both say the same."""
        return (
            self.live is other.live and self.dotted == other.dotted and self.unordered == other.unordered
            and repr(self.kind) == repr(other.kind)
        )  # fmt: skip


UNKNOWN = Known()


def plain(kind: object) -> object:
    """An annotation without what does not say what a value is: `Annotated`, and None beside one other."""
    while True:
        origin = get_origin(kind)
        if origin is Annotated:
            kind = get_args(kind)[0]
        elif origin in (Union, UnionType):
            left = [one for one in get_args(kind) if one is not NoneType]
            if len(left) != 1:
                return ABSENT
            kind = left[0]
        else:
            return kind


def instance(kind: object) -> Known:
    """What is known of an instance of a type. Of a type variable, `object` or `Any`: nothing."""
    found = plain(kind)
    if found in (ABSENT, object, typing.Any, None) or isinstance(found, typing.TypeVar | str):
        return UNKNOWN
    return Known(kind=found)


@lru_cache(maxsize=4096)
def hints(of: FunctionType | type) -> dict[str, object]:
    """The annotations of a function or class, resolved; those that can be, where not all can."""
    try:
        return dict(get_type_hints(of, include_extras=True))
    except Exception:  # noqa: BLE001 - an annotation is an expression of the user's, and may raise whatever it likes
        own = getattr(of, "__annotations__", {})
        space = of.__globals__ if isinstance(of, FunctionType) else vars(inspect.getmodule(of) or typing)
        found: dict[str, object] = {}
        for name, written in own.items():
            value = _looked_up(written, space) if isinstance(written, str) else written
            if value is not ABSENT:
                found[name] = value
        return found


def _looked_up(written: str, space: typing.Mapping[str, object]) -> object:
    """The object of a dotted name, without its parameters."""
    first, *rest = written.partition("[")[0].split(".")
    found = space.get(first, ABSENT)
    for word in rest:
        found = inspect.getattr_static(found, word, ABSENT) if found is not ABSENT else ABSENT
    return found


def result(of: FunctionType) -> Known:
    """What a function gives, by its annotation."""
    return awaited(hints(of).get("return", ABSENT))


def awaited(kind: object) -> Known:
    """What is given at the end: of a coroutine its result, of a context manager what it hands out."""
    found, origin = plain(kind), get_origin(plain(kind))
    arguments = get_args(found)
    if origin in (collections.abc.Awaitable, collections.abc.Coroutine) and arguments:
        return instance(arguments[-1])
    return instance(found)


_ELEMENTS = (
    list, set, frozenset, collections.deque, collections.abc.Sequence, collections.abc.Iterable,
    collections.abc.Iterator, collections.abc.Set, collections.abc.Collection, collections.abc.MutableSequence,
    collections.abc.AsyncIterator, collections.abc.AsyncIterable, collections.abc.Generator,
    collections.abc.AsyncGenerator, collections.abc.KeysView, dict, collections.abc.Mapping,
)  # fmt: skip


def element(known: Known) -> Known:
    """What iterating over it gives."""
    cls, arguments = known.cls, known.arguments
    if cls is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return instance(arguments[0])
    if cls in _ELEMENTS and arguments:
        return instance(arguments[0])
    if cls is collections.abc.ItemsView and len(arguments) == 2:
        return Known(kind=GenericAlias(tuple, arguments))
    if cls is collections.abc.ValuesView and arguments:
        return instance(arguments[-1])
    return UNKNOWN


def item(known: Known) -> Known:
    """What `known[…]` gives."""
    if isinstance(known.live, dict | list | tuple):
        held = {type(one) for one in (known.live.values() if isinstance(known.live, dict) else known.live)}
        return Known(kind=held.pop()) if len(held) == 1 else UNKNOWN
    if isinstance(known.cls, type) and issubclass(known.cls, collections.abc.Mapping) and len(known.arguments) == 2:
        return instance(known.arguments[1])
    return element(known)


def member(base: Known, name: str, names: Names) -> Known:
    """What `base.name` is."""
    if isinstance(base.live, ModuleType):
        found = vars(base.live).get(name, ABSENT)
        known = names.of(found) if found is not ABSENT else ""
        return Known(live=found, dotted=known or f"{base.live.__name__}.{name}", shared=True)
    if isinstance(base.live, type):
        return _of_class(base, base.live, name, names)
    cls = base.cls
    if cls is not None:
        return _of_instance(base, cls, name, names)
    return Known(dotted=f"{base.dotted}.{name}") if base.dotted and base.live is ABSENT else UNKNOWN


def _of_class(base: Known, cls: type, name: str, names: Names) -> Known:
    found = inspect.getattr_static(cls, name, ABSENT)
    dotted = names.of_member(cls, name)
    if isinstance(found, classmethod) and isinstance(found.__func__, FunctionType):
        return Known(live=found.__func__, dotted=dotted, of=base)
    if isinstance(found, staticmethod):
        found = found.__func__
    return Known(live=found, dotted=dotted, shared=True)


def _of_instance(base: Known, cls: type, name: str, names: Names) -> Known:
    found = inspect.getattr_static(cls, name, ABSENT)
    dotted = names.of_member(cls, name)
    reads = found.fget if isinstance(found, property) else found.func if isinstance(found, cached_property) else None
    if isinstance(reads, FunctionType):
        known = _given(dotted, base, names) or result(reads)
        return Known(kind=known.kind, dotted=dotted, reads=reads, of=base)
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if isinstance(found, FunctionType):
        return Known(live=found, dotted=dotted, of=base)
    if name in (written := hints(cls)):
        known = instance(written[name])
        return Known(kind=known.kind, shared=base.shared)
    own = inspect.getattr_static(base.live, name, ABSENT) if base.live is not ABSENT else ABSENT
    if own is not ABSENT and not hasattr(type(own), "__get__"):
        return Known(live=own, shared=base.shared)
    return Known(dotted=dotted, of=base, shared=base.shared)


def _given(dotted: str, base: Known, names: Names) -> Known | None:
    """What a call or property of a library gives that has no annotation."""
    given = GIVES.get(dotted)
    if given is None:
        return None
    if given == "self":
        return Known(kind=base.kind if base.live is ABSENT else type(base.live))
    found = names.class_named(given)
    return Known(kind=found) if found is not None else UNKNOWN


def given(called: Known, names: Names) -> Known | None:
    """What calling it gives, where a library has no annotation for it."""
    return _given(called.dotted, called.of or UNKNOWN, names)


def unwrapped(thing: object) -> object:
    """What decorators have wrapped, looked up without asking objects that answer to every name."""
    for _ in range(_DECORATORS):
        inner = inspect.getattr_static(thing, "__wrapped__", ABSENT)
        if inner is ABSENT or isinstance(thing, type):
            break
        thing = inner
    return thing


def function_of(thing: object) -> tuple[FunctionType | None, object]:
    """The function in an object that can be called, and what it is bound to."""
    if isinstance(thing, MethodType):
        inner = thing.__func__
        return (inner, thing.__self__) if isinstance(inner, FunctionType) else (None, ABSENT)
    return (thing, ABSENT) if isinstance(thing, FunctionType) else (None, ABSENT)
