"""Names in a function, as what they stand for where the walk is now: locals, closures, globals, builtins."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType

from outlive.lint.known import ABSENT, UNKNOWN, Known
from outlive.lint.names import Names
from outlive.lint.source import Function

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in a node but what is in functions and classes that it defines; those are given themselves."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, _SCOPES):
            yield from inside(child)


def parameters(node: Function) -> list[ast.arg]:
    """All parameters of a function."""
    given = node.args
    more = [one for one in (given.vararg, given.kwarg) if one is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *more]


@dataclass(slots=True)
class Scope:
    """`known` changes as the walk goes on. `outer` is the function around one that is nested."""

    fn: FunctionType
    names: Names
    known: dict[str, Known] = field(default_factory=dict)
    bound: Counter[str] = field(default_factory=Counter)
    """How often each local name is given something."""
    declared: set[str] = field(default_factory=set)
    """Names that `global` gives to the module."""
    outer: Scope | None = None

    @classmethod
    def of(cls, fn: FunctionType, node: Function, names: Names, outer: Scope | None = None) -> Scope:
        """The scope of a function before its first line."""
        made = cls(fn, names, outer=outer)
        made.bound.update(one.arg for one in parameters(node))
        elsewhere: set[str] = set()
        for one in inside(node):
            if isinstance(one, ast.Global):
                made.declared.update(one.names)
            elif isinstance(one, ast.Nonlocal):
                elsewhere.update(one.names)
            made.bound.update(_bound_by(one))
        for name in (*made.declared, *elsewhere):
            made.bound.pop(name, None)
        return made

    def find(self, name: str) -> Known:
        """What a name stands for here."""
        if name in self.known:
            return self.known[name]
        if name in self.bound:
            return UNKNOWN
        return self.outer.from_inside(name) if self.outer is not None else self._outside(name)

    def from_inside(self, name: str) -> Known:
        """What it stands for in a nested function, whenever that is called."""
        if name in self.bound:
            return self.known.get(name, UNKNOWN) if self.bound[name] == 1 else UNKNOWN
        return self.find(name)

    def _outside(self, name: str) -> Known:
        fn = self.fn
        if name in fn.__code__.co_freevars and fn.__closure__ is not None:
            cell = fn.__closure__[fn.__code__.co_freevars.index(name)]
            try:
                return Known(live=cell.cell_contents)
            except ValueError:
                return UNKNOWN
        shared = name in fn.__globals__
        found = fn.__globals__[name] if shared else vars(builtins).get(name, ABSENT)
        if found is ABSENT:
            return UNKNOWN
        dotted = self.names.of(found) or ("" if shared else f"builtins.{name}")
        return Known(live=found, dotted=dotted, shared=True)


def _bound_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id] if isinstance(node.ctx, ast.Store) else []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [one.asname or one.name.partition(".")[0] for one in node.names]
    if isinstance(node, ast.ExceptHandler | ast.MatchStar | ast.MatchAs):
        return [node.name] if node.name else []
    return [node.rest] if isinstance(node, ast.MatchMapping) and node.rest else []
