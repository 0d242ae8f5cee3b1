"""Code that lets nothing pass: the signal that ends an attempt is a BaseException, and has to get through."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator

from outlive.lint.scope import inside
from outlive.lint.values import Values, is_run

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def swallowing(node: ast.Try | ast.TryStar, values: Values) -> Iterator[tuple[ast.AST, str]]:
    """Handlers and `finally` blocks of a `try` that end what should have gone on, with what they are."""
    if not unwinds(node.body, values):
        return
    for handler in node.handlers:
        if _catches_all(handler, values) and not _raises(handler.body):
            yield handler, "except" if handler.type is None else f"except {ast.unparse(handler.type)}"
    if (leaves := _leaves(node.finalbody)) is not None:
        yield leaves, f"{type(leaves).__name__.lower()} in finally"


def suppressing(node: ast.With | ast.AsyncWith, values: Values) -> Iterator[tuple[ast.AST, str]]:
    """`with suppress(BaseException)` around what may be unwound."""
    for one in node.items:
        call = one.context_expr
        if not isinstance(call, ast.Call) or values.of(call.func).live is not contextlib.suppress:
            continue
        if any(values.of(kind).live is BaseException for kind in call.args) and unwinds(node.body, values):
            yield call, ast.unparse(call)


def unwinds(body: Iterable[ast.stmt], values: Values) -> bool:
    """Whether an attempt can end in there: where something is awaited, or a run is asked for a value."""
    for statement in body:
        for one in (statement, *inside(statement)):
            if isinstance(one, ast.Await | ast.AsyncFor | ast.AsyncWith):
                return True
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and is_run(values.of(one.func.value)):
                return True
    return False


def _catches_all(handler: ast.ExceptHandler, values: Values) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(values.of(kind).live is BaseException for kind in kinds)


def _raises(body: Iterable[ast.stmt]) -> bool:
    """Whether it raises somewhere: then its author has thought of what has to pass."""
    return any(isinstance(one, ast.Raise) for statement in body for one in (statement, *inside(statement)))


def _leaves(body: Iterable[ast.stmt], *, looping: bool = False) -> ast.AST | None:
    """What leaves a `finally` before its end: with it goes whatever was being raised."""
    for one in body:
        found: ast.AST | None = None
        if isinstance(one, ast.Return) or (isinstance(one, ast.Break | ast.Continue) and not looping):
            found = one
        elif not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for inner in (getattr(one, name, []) for name in ("body", "orelse", "finalbody")):
                found = found or _leaves(inner, looping=looping or isinstance(one, _LOOPS))
        if found is not None:
            return found
    return None
