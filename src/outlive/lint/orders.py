"""Where the order of a set becomes the order of something else."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from outlive.lint.values import Values, is_run, is_set, is_unordered

# They give the same whatever the order of what they are given.
_ANY_ORDER = frozenset(
    f"builtins.{name}" for name in ("any", "all", "sum", "min", "max", "len", "set", "frozenset", "sorted", "bool")
) | {"math.fsum", "collections.Counter"}
# They go through what they are given, in its order.
_IN_ORDER = frozenset(
    f"builtins.{name}"
    for name in ("list", "tuple", "iter", "enumerate", "zip", "map", "filter", "str", "repr", "format")
) | {"collections.deque", "functools.reduce"}
_ONE_BY_ONE = frozenset(f"builtins.{name}" for name in ("list", "tuple", "iter", "map", "filter"))
_OF_LISTS = frozenset({"extend", "extendleft", "writelines"})
_OF_SETS = frozenset("update union intersection difference symmetric_difference issubset issuperset isdisjoint".split())


def takes_any_order(node: ast.Call, values: Values) -> bool:
    """Whether what is called gives the same for the same elements in any order."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in _OF_SETS:
        return is_set(values.of(node.func.value))
    return _name(node, values) in _ANY_ORDER


def keeps_order(node: ast.Call, values: Values) -> bool:
    """Whether what is called gives what it is given, one by one."""
    return _name(node, values) in _ONE_BY_ONE


def loose(node: ast.expr, values: Values) -> bool:
    """Whether an expression iterates in an order that differs from process to process."""
    return is_unordered(values.of(node))


def minds_no_order(body: Sequence[ast.stmt], values: Values) -> bool:
    """Whether a loop's body comes to the same in any order: it changes sets, counts, takes away, and nothing else."""
    for one in body:
        if isinstance(one, ast.If):
            fine = minds_no_order([*one.body, *one.orelse], values) and _asks_nothing(one.test)
        elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
            fine = _changes_set(one.value, values)
        elif isinstance(one, ast.AugAssign):
            fine = values.of(as_read(one.target)).cls is int and _asks_nothing(one.value)
        else:
            fine = isinstance(one, ast.Pass | ast.Continue | ast.Delete | ast.Assert)
        if not fine:
            return False
    return True


def _changes_set(node: ast.Call, values: Values) -> bool:
    func = node.func
    if not isinstance(func, ast.Attribute) or func.attr not in ("add", "discard", "remove", "update"):
        return False
    return is_set(values.of(func.value)) and all(_asks_nothing(one) for one in node.args)


def _asks_nothing(node: ast.expr) -> bool:
    return not any(isinstance(one, ast.Await | ast.NamedExpr | ast.Yield) for one in ast.walk(node))


def as_read(target: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr:
    """What is stored to, as an expression that is read."""
    return ast.parse(ast.unparse(target), mode="eval").body


def ordering(node: ast.Call, values: Values) -> Iterator[tuple[ast.AST, str]]:
    """What a call puts into an order that differs, with what it is."""
    func = node.func
    name = _name(node, values)
    if name in _IN_ORDER or name.startswith("itertools."):
        yield from _loose_of(node.args, name.removeprefix("builtins."), values)
    if not isinstance(func, ast.Attribute):
        return
    base = values.of(func.value)
    if func.attr == "pop" and is_set(base) and is_unordered(base):
        yield node, "pop() of a set"
    elif func.attr == "popitem" and base.unordered:
        yield node, "popitem() of a dict in the order of a set"
    elif func.attr == "join" and base.cls in (str, bytes):
        yield from _loose_of(node.args, "join", values)
    elif func.attr in _OF_LISTS and base.cls is not None and issubclass(base.cls, list):
        yield from _loose_of(node.args, func.attr, values)
    elif func.attr == "map" and is_run(base):
        yield from _loose_of(node.args[1:], "run.map", values)


def _loose_of(arguments: list[ast.expr], name: str, values: Values) -> Iterator[tuple[ast.AST, str]]:
    for one in arguments:
        given = one.value if isinstance(one, ast.Starred) else one
        if not isinstance(one, ast.Starred) and loose(given, values):
            yield one, f"{name}() of a {'set' if is_set(values.of(given)) else 'dict in the order of a set'}"


def _name(node: ast.Call, values: Values) -> str:
    called = values.of(node.func)
    if isinstance(called.live, type) and not called.dotted:
        return f"{called.live.__module__}.{called.live.__qualname__}"
    return called.dotted or (
        f"{getattr(called.live, '__module__', '')}.{getattr(called.live, '__name__', '')}"
        if callable(called.live)
        else ""
    )
