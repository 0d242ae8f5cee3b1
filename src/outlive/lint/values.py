"""What an expression gives, as far as names and annotations say so."""

from __future__ import annotations

import ast
import collections.abc
import copy
import importlib
import inspect
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath
from types import FunctionType, GenericAlias

from outlive.lint import known as facts
from outlive.lint.known import ABSENT, UNKNOWN, Known, element, instance, member
from outlive.lint.names import Names
from outlive.lint.own import is_library
from outlive.lint.scope import Scope, inside, parameters
from outlive.lint.source import syntax_of

# What a function of the user's without an annotation gives, as its `return` statements say.
Infer = Callable[[FunctionType, Known], Known]
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp

_SETS = (set, frozenset)
_LISTS: tuple[object, ...] = (list, tuple, sorted, reversed, iter, collections.deque)
_SET_GIVES_SET = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_VIEWS: dict[str, type] = {
    "keys": collections.abc.KeysView, "values": collections.abc.ValuesView, "items": collections.abc.ItemsView
}  # fmt: skip
# Which of the two parameters of a dict each of them has.
_VIEWED = {"keys": slice(0, 1), "values": slice(1, 2), "items": slice(0, 2)}
_ITSELF: tuple[object, ...] = (copy.copy, copy.deepcopy)


def is_set(known: Known) -> bool:
    """Whether it is a set that iterates as sets do."""
    cls = known.cls
    return cls is not None and issubclass(cls, _SETS) and cls.__iter__ in (set.__iter__, frozenset.__iter__)


def is_view(known: Known) -> bool:
    """Whether it is `dict.keys()` or `.items()`: ordered itself, but operators make sets of it."""
    return known.cls in (collections.abc.KeysView, collections.abc.ItemsView)


def is_run(known: Known | None) -> bool:
    """Whether it is what an agent is handed."""
    cls = known.cls if known is not None else None
    return cls is not None and cls.__qualname__ == "Run" and cls.__module__ == "outlive.engine.run"


def of_type(kind: type, inner: Known) -> Known:
    """A collection of what is known of its elements."""
    held = inner.kind if inner.live is ABSENT else inner.cls or ABSENT
    return Known(kind=kind if held is ABSENT else GenericAlias(kind, (held,)))


def imported(name: str) -> Known:
    """A module, as an import statement finds it when it is run."""
    try:
        return Known(live=importlib.import_module(name), shared=True)
    except Exception:  # noqa: BLE001 - a module of the user's may raise whatever it likes; then it is known by name
        return Known(dotted=name)


class Values:
    """Expressions of one scope."""

    def __init__(self, scope: Scope, names: Names, infer: Infer, owner: type | None = None) -> None:
        self.scope = scope
        self.names = names
        self.owner = owner
        self._infer = infer

    def of(self, node: ast.expr) -> Known:
        """What is known of an expression where the walk is now."""
        made = _HOW.get(type(node))
        return made(self, node) if made is not None else UNKNOWN

    def annotation(self, node: ast.expr) -> object:
        """The type that an annotation in a function's body says, ABSENT where it is not known."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self.annotation(ast.parse(node.value, mode="eval").body)
            except SyntaxError:
                return ABSENT
        if isinstance(node, ast.BinOp):
            sides = [self.annotation(node.left), self.annotation(node.right)]
            left = [one for one in sides if one is not None]
            return left[0] if len(left) == 1 else ABSENT
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Subscript):
            origin, inner = self.annotation(node.value), node.slice
            each = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            arguments = tuple(self.annotation(one) for one in each)
            if origin is ABSENT or ABSENT in arguments or not isinstance(origin, type):
                return origin
            return GenericAlias(origin, arguments)
        return self.of(node).live

    @contextmanager
    def comprehending(self, node: Comprehension) -> Iterator[None]:
        """While the block runs, the variables of a comprehension stand for its elements."""
        before = dict(self.scope.known)
        try:
            for one in node.generators:
                self.bind(one.target, element(self.of(one.iter)))
            yield
        finally:
            self.scope.known = before

    def bind(self, target: ast.expr, known: Known) -> None:
        """What a target stands for from here on."""
        if isinstance(target, ast.Name) and target.id not in self.scope.declared:
            self.scope.known[target.id] = known
        elif isinstance(target, ast.Starred):
            self.bind(target.value, UNKNOWN)
        elif isinstance(target, ast.Tuple | ast.List):
            each = known.arguments if known.cls is tuple else ()
            fits = len(each) == len(target.elts) and Ellipsis not in each
            for place, one in enumerate(target.elts):
                self.bind(one, instance(each[place]) if fits else UNKNOWN)

    def entered(self, known: Known) -> Known:
        """What `with known as …` hands out."""
        cls = known.cls
        if cls is None:
            return UNKNOWN
        for name in ("__aenter__", "__enter__"):
            enter = inspect.getattr_static(cls, name, None)
            if isinstance(enter, FunctionType) and cls.__module__ not in ("contextlib", "typing"):
                found = facts.result(enter)
                return found if isinstance(found.cls, type) and found.kind is not typing.Self else known
        return element(known) if not known.arguments else instance(known.arguments[0])

    # ---- by kind of expression

    def _constant(self, node: ast.Constant) -> Known:
        return Known(live=node.value)

    def _name(self, node: ast.Name) -> Known:
        return self.scope.find(node.id)

    def _attribute(self, node: ast.Attribute) -> Known:
        base = self.of(node.value)
        if is_run(base) and node.attr == "deps" and base.arguments:
            return instance(base.arguments[0])
        if is_run(base) and node.attr == "log":
            return Known(kind=self.names.class_named("outlive.engine.run.QuietOnReplay") or ABSENT)
        found = member(base, node.attr, self.names)
        if base.cls is None or found.live is not ABSENT or found.kind is not ABSENT:
            return found
        made = self._set_up(base.cls).get(node.attr, UNKNOWN)
        return replace(found, kind=made.kind) if made.kind is not ABSENT else found

    def _set_up(self, cls: type) -> dict[str, Known]:
        """What `__init__` of a class of the user's stores in attributes that have no annotation."""
        init = inspect.getattr_static(cls, "__init__", None)
        if not isinstance(init, FunctionType) or is_library(init.__code__.co_filename):
            return {}
        return _attributes(init, self.names, self._infer)

    def _inner(self, node: ast.Await | ast.NamedExpr | ast.Starred) -> Known:
        return self.of(node.value)

    def _set(self, node: ast.Set) -> Known:
        return of_type(set, self._alike([self.of(one) for one in node.elts]))

    def _list(self, node: ast.List) -> Known:
        return of_type(list, self._alike([self.of(one) for one in node.elts]))

    def _tuple(self, node: ast.Tuple) -> Known:
        return Known(kind=tuple)

    def _comprehension(self, node: ast.SetComp | ast.ListComp | ast.GeneratorExp) -> Known:
        with self.comprehending(node):
            inner = self.of(node.elt)
        return of_type(set if isinstance(node, ast.SetComp) else list, inner)

    def _dict(self, node: ast.Dict) -> Known:
        return self._dict_of([self.of(one) for one in node.keys if one is not None], [self.of(o) for o in node.values])

    def _dict_comprehension(self, node: ast.DictComp) -> Known:
        loose = any(is_unordered(self.of(one.iter)) for one in node.generators)
        with self.comprehending(node):
            made = self._dict_of([self.of(node.key)], [self.of(node.value)])
        return replace(made, unordered=loose)

    def _dict_of(self, keys: list[Known], values: list[Known]) -> Known:
        held = [one.kind if one.live is ABSENT else one.cls for one in (self._alike(keys), self._alike(values))]
        known = all(one is not ABSENT and one is not None for one in held)
        return Known(kind=GenericAlias(dict, tuple(held)) if known else dict)

    def _binary(self, node: ast.BinOp) -> Known:
        left, right = self.of(node.left), self.of(node.right)
        if isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
            if is_set(left) or is_view(left):
                other = element(right) if isinstance(node.op, ast.BitOr | ast.BitXor) else element(left)
                same = self._alike([_first(left), other if other.kind is not ABSENT else _first(right)])
                return of_type(set, same if isinstance(node.op, ast.BitOr | ast.BitXor) else _first(left))
            return UNKNOWN
        if isinstance(node.op, ast.Div) and left.cls is not None and issubclass(left.cls, PurePath):
            return Known(kind=left.cls)
        return left if left.cls in (str, int) and left.cls is right.cls else UNKNOWN

    def _either(self, node: ast.IfExp) -> Known:
        return merged(self.of(node.body), self.of(node.orelse))

    def _boolean(self, node: ast.BoolOp) -> Known:
        first, *rest = (self.of(one) for one in node.values)
        for one in rest:
            first = merged(first, one)
        return first

    def _subscript(self, node: ast.Subscript) -> Known:
        base = self.of(node.value)
        if isinstance(base.live, type):
            made = self.annotation(node)
            return Known(live=made) if made is not ABSENT else UNKNOWN
        if isinstance(node.slice, ast.Slice):
            return anew(base)
        return replace(facts.item(base), shared=base.shared)

    def _text(self, node: ast.JoinedStr) -> Known:
        return Known(kind=str)

    def _alike(self, each: list[Known]) -> Known:
        """What all of them are."""
        kinds = {repr(one.cls if one.live is not ABSENT else one.kind) for one in each}
        return each[0] if len(kinds) == 1 else UNKNOWN

    # ---- calls

    def _call(self, node: ast.Call) -> Known:
        called = self.of(node.func)
        if isinstance(called.live, GenericAlias) and isinstance(called.live.__origin__, type):
            return Known(kind=called.live)
        first = self.of(node.args[0]) if node.args else UNKNOWN
        if called.of is not None and (found := self._of_method(called, node, first)) is not None:
            return found
        if (found := facts.given(called, self.names)) is not None:
            return found
        return self._of_function(called, node, first)

    def _of_method(self, called: Known, node: ast.Call, first: Known) -> Known | None:
        base, name = called.of or UNKNOWN, node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if is_run(base):
            return self._of_run(base, name, node, first)
        if is_set(base):
            return replace(base, live=ABSENT, kind=base.kind if base.live is ABSENT else base.cls, shared=False) \
                if name in _SET_GIVES_SET else facts.element(base) if name == "pop" else None  # fmt: skip
        if base.cls is not None and issubclass(base.cls, dict) and base.cls.__iter__ is dict.__iter__:
            return self._of_dict(base, name)
        return None

    def _of_dict(self, base: Known, name: str) -> Known | None:
        if name in _VIEWS:
            view, arguments = _VIEWS[name], base.arguments
            kind: object = GenericAlias(view, arguments[_VIEWED[name]]) if len(arguments) == 2 else view
            return Known(kind=kind, unordered=base.unordered)
        if name in ("get", "pop", "setdefault"):
            return replace(facts.item(base), shared=base.shared)
        return anew(base) if name == "copy" else None

    def _of_run(self, base: Known, name: str, node: ast.Call, first: Known) -> Known | None:
        if name in ("step", "call", "use"):
            return self._gives(first)
        if name == "map":
            return of_type(list, self._gives(first))
        if name == "options":
            return base
        if name == "turns":
            return of_type(list, first)
        if name in ("receive", "ask") and len(node.args) > 1:
            return instance(self.annotation(node.args[1]))
        return None

    def _gives(self, called: Known) -> Known:
        """What a function, a tool or an agent gives."""
        inner = inspect.getattr_static(called.live, "fn", ABSENT)
        fn = inner if isinstance(inner, FunctionType) else called.live
        fn = facts.unwrapped(fn)
        return facts.result(fn) if isinstance(fn, FunctionType) else UNKNOWN

    def _of_function(self, called: Known, node: ast.Call, first: Known) -> Known:
        live = called.live
        if live is set or live is frozenset:
            return of_type(set, element(first))
        if any(live is one for one in _LISTS):
            return of_type(list, element(first))
        if called.dotted == "builtins.super" and self.owner is not None and len(self.owner.__mro__) > 1:
            return Known(kind=self.owner.__mro__[1])
        if live is typing.cast and len(node.args) > 1:
            return instance(self.annotation(node.args[0]))
        if any(live is one for one in _ITSELF):
            return anew(first)
        if called.dotted == "builtins.dict.fromkeys":
            return Known(kind=dict, unordered=is_unordered(first))
        return self._of_live(called)

    def _of_live(self, called: Known) -> Known:
        live = called.live
        if isinstance(live, type):
            return Known(kind=live)
        live = facts.unwrapped(live)
        if not isinstance(live, FunctionType):
            return UNKNOWN
        if "return" in live.__annotations__:
            found = facts.result(live)
            return (called.of or UNKNOWN) if live.__annotations__["return"] in (typing.Self, "Self") else found
        return self._infer(live, called.of or UNKNOWN)


def _first(known: Known) -> Known:
    return element(known)


@lru_cache(maxsize=512)
def _attributes(init: FunctionType, names: Names, infer: Infer) -> dict[str, Known]:
    syntax = syntax_of(init.__code__)
    if syntax is None or not parameters(syntax[1]):
        return {}
    node, found = syntax[1], dict[str, Known]()
    scope = Scope.of(init, node, names)
    values, own = Values(scope, names, infer), parameters(node)[0].arg
    for one in parameters(node):
        scope.known[one.arg] = instance(facts.hints(init).get(one.arg, ABSENT))
    for made in inside(node):
        if not isinstance(made, ast.Assign | ast.AnnAssign) or made.value is None:
            continue
        known = values.of(made.value)
        if isinstance(made, ast.AnnAssign):
            known = instance(values.annotation(made.annotation))
        if known.live is not ABSENT:
            known = Known(kind=known.cls or ABSENT)
        for target in made.targets if isinstance(made, ast.Assign) else [made.target]:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == own:
                before = found.get(target.attr)
                found[target.attr] = known if before is None or before.same(known) else UNKNOWN
    return found


def merged(one: Known, other: Known) -> Known:
    """What is known where it is one or the other."""
    if one.same(other):
        return one
    if is_set(one) and is_set(other):
        return Known(kind=set, shared=one.shared or other.shared)
    return UNKNOWN


def anew(known: Known) -> Known:
    """A copy of it: of the same type, and nobody else's."""
    kind = known.kind if known.live is ABSENT else known.cls or ABSENT
    return Known(kind=kind, unordered=known.unordered)


def is_unordered(known: Known) -> bool:
    """Whether it iterates in an order that another process may not have.

    Small integers hash to themselves, so that sets of them keep theirs; so does what has one element.
    """
    if known.unordered:
        return True
    if not is_set(known):
        return False
    if isinstance(known.live, set | frozenset):
        return len(known.live) > 1 and not all(type(one) in (int, bool) for one in known.live)
    return not (known.arguments and all(one in (int, bool) for one in known.arguments))


_HOW: dict[type, Callable[[Values, typing.Any], Known]] = {
    ast.Constant: Values._constant, ast.Name: Values._name, ast.Attribute: Values._attribute,
    ast.Await: Values._inner, ast.NamedExpr: Values._inner, ast.Starred: Values._inner, ast.Set: Values._set,
    ast.List: Values._list, ast.Tuple: Values._tuple, ast.SetComp: Values._comprehension,
    ast.ListComp: Values._comprehension, ast.GeneratorExp: Values._comprehension, ast.Dict: Values._dict,
    ast.DictComp: Values._dict_comprehension, ast.BinOp: Values._binary, ast.IfExp: Values._either,
    ast.BoolOp: Values._boolean, ast.Subscript: Values._subscript, ast.JoinedStr: Values._text, ast.Call: Values._call,
}  # fmt: skip
