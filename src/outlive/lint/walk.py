"""One function, statement by statement: what variables stand for, and what is asked of them.

A loop is walked twice, the first time only to learn what its variables may stand for when it comes round again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType

from outlive.lint import known as facts
from outlive.lint.asked import Asked
from outlive.lint.known import UNKNOWN, Known, element, instance
from outlive.lint.orders import as_read, keeps_order, loose, minds_no_order, takes_any_order
from outlive.lint.own import Own
from outlive.lint.reading import Reading
from outlive.lint.scope import Scope, inside, parameters
from outlive.lint.source import Function, Source
from outlive.lint.swallows import suppressing, swallowing
from outlive.lint.values import Comprehension, Infer, Values, imported, is_set, is_view, merged

_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_SET_OPERATIONS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)


class Walk(ast.NodeVisitor):
    """Reads one function, with the functions that are nested in it."""

    def __init__(self, scope: Scope, reading: Reading, own: Own, infer: Infer, owner: type | None) -> None:
        self.scope, self.reading, self.own = scope, reading, own
        self.values = Values(scope, own.names, infer, owner)
        self.asked = Asked(reading, self.values, own)
        self.log_only: frozenset[str] = frozenset()
        self._infer = infer
        self._owner = owner
        self._nested: list[Function] = []
        self._gives: list[Known] = []

    def run(self, node: Function) -> None:
        """Read it from its first line to its last."""
        self.log_only = self.asked.only_said(node)
        if isinstance(node, ast.Lambda):
            self.visit(node.body)
            self._gives.append(self.values.of(node.body))
        else:
            self.block(node.body)
        for one in self._nested:
            self._into(one)
        self.reading.gives = self._result()

    def block(self, body: Iterable[ast.stmt]) -> None:
        for one in body:
            outer, self.reading.statement = self.reading.statement, one
            self.visit(one)
            self.reading.statement = outer

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for one in nodes:
            self.visit(one)

    # ---- functions in it

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._defined(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._defined(node)

    def _defined(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.visit_all([*node.decorator_list, *node.args.defaults, *(one for one in node.args.kw_defaults if one)])
        self.scope.known[node.name] = UNKNOWN
        if not self.reading.quiet and node not in self._nested:
            self._nested.append(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.known[node.name] = UNKNOWN

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._into(node)

    def _into(self, node: Function) -> None:
        inner = Scope.of(self.scope.fn, node, self.scope.names, self.scope)
        walk = Walk(inner, self.reading, self.own, self._infer, self._owner)
        for one in parameters(node):
            if one.annotation is not None:
                inner.known[one.arg] = instance(self.values.annotation(one.annotation))
        gives, statement = self.reading.gives, self.reading.statement
        walk.run(node)
        self.reading.gives, self.reading.statement = gives, statement

    def _result(self) -> Known:
        if not self._gives:
            return UNKNOWN
        first, *rest = self._gives
        for one in rest:
            first = merged(first, one)
        return first

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.visit(node.value)
            if not self.reading.quiet:
                self._gives.append(self.values.of(node.value))

    # ---- what variables stand for

    def visit_Assign(self, node: ast.Assign) -> None:
        with self._said(node.targets):
            self.visit(node.value)
        known = self.values.of(node.value)
        for target in node.targets:
            self._store(target, known, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            return
        with self._said([node.target]):
            self.visit(node.value)
        found, said = self.values.of(node.value), instance(self.values.annotation(node.annotation))
        better = (
            said if said.cls is not None and (not is_set(found) or (is_set(said) and not found.arguments)) else found
        )
        self._store(node.target, better, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        before = self.values.of(as_read(node.target))
        if before.cls is list and loose(node.value, self.values):
            self.reading.add("set-order", node.value, "a list that is extended by a set")
        keeps = is_set(before) and isinstance(node.op, _SET_OPERATIONS)
        self._store(node.target, before if keeps or before.cls in (int, str, float) else UNKNOWN, None)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._store(node.target, self.values.of(node.value), node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        for one in node.targets:
            self.asked.changed(one, self.scope.declared)

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            found = imported(one.name)
            whole = found if one.asname else imported(one.name.partition(".")[0])
            self.scope.known[one.asname or one.name.partition(".")[0]] = whole

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        package = str(self.scope.fn.__globals__.get("__package__") or "")
        parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = imported(".".join([*parts, *([node.module] if node.module else [])]))
        for one in node.names:
            found = facts.member(module, one.name, self.own.names)
            if isinstance(module.live, ModuleType) and found.live is facts.ABSENT:
                found = imported(f"{module.live.__name__}.{one.name}")
            self.scope.known[one.asname or one.name] = found

    def _store(self, target: ast.expr, known: Known, value: ast.expr | None) -> None:
        self.asked.changed(target, self.scope.declared)
        if isinstance(target, ast.Tuple | ast.List):
            if value is not None and loose(value, self.values):
                self.reading.add("set-order", value, "unpacking of a set")
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                for inner, one in zip(target.elts, value.elts, strict=True):
                    self._store(inner, self.values.of(one), one)
                return
        self.values.bind(target, known)

    @contextmanager
    def _said(self, targets: Sequence[ast.expr]) -> Iterator[None]:
        """What is read meanwhile goes into a variable; into nothing but a log, if that is all that is done with it."""
        said = all(isinstance(one, ast.Name) and one.id in self.log_only for one in targets)
        self.reading.saying += said
        yield
        self.reading.saying -= said

    # ---- ways through it

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches([(node.body, {}), (node.orelse, {})])

    def visit_While(self, node: ast.While) -> None:
        self._loop([node.test], None, [node.test], node.body, node.orelse)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        if loose(node.iter, self.values) and not minds_no_order(node.body, self.values):
            self.reading.add("set-order", node.iter, f"a loop over {self._called(node.iter)}")
        self._loop([], (node.target, element(self.values.of(node.iter))), [], node.body, node.orelse)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self.visit_For(node)

    def _loop(
        self, quiet: list[ast.expr], each: tuple[ast.expr, Known] | None, tests: list[ast.expr], body: list[ast.stmt],
        orelse: list[ast.stmt],
    ) -> None:  # fmt: skip
        before = dict(self.scope.known)
        for again in (False, True):
            self.reading.quiet += not again
            if each is not None:
                self._store(each[0], each[1], None)
            self.visit_all(tests if again else quiet)
            self.block(body)
            self.reading.quiet -= not again
            self.scope.known = _merged(before, self.scope.known)
            before = dict(self.scope.known)
        self.block(orelse)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for call, what in suppressing(node, self.values):
            self.reading.add("swallows", call, what)
        for one in node.items:
            self.visit(one.context_expr)
            known = self.values.of(one.context_expr)
            self.asked.entered(one.context_expr, known)
            if one.optional_vars is not None:
                self._store(one.optional_vars, self.values.entered(known), None)
        self.block(node.body)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        self.visit_With(node)

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        for one, what in swallowing(node, self.values):
            self.reading.add("swallows", one, what)
        before = dict(self.scope.known)
        self.block(node.body)
        after = dict(self.scope.known)
        anywhere = _merged(before, after)
        ways = [(node.orelse, after)]
        for handler in node.handlers:
            if handler.type is not None:
                self.visit(handler.type)
            ways.append((handler.body, {**anywhere, **({handler.name: UNKNOWN} if handler.name else {})}))
        self._branches(ways)
        self.block(node.finalbody)

    def visit_TryStar(self, node: ast.TryStar) -> None:
        self.visit_Try(node)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        bound = {one.name: UNKNOWN for one in inside(node) if isinstance(one, ast.MatchAs | ast.MatchStar) and one.name}
        for case in node.cases:
            if case.guard is not None:
                self.visit(case.guard)
        self._branches([*((one.body, {**self.scope.known, **bound}) for one in node.cases), ([], {})])

    def _branches(self, ways: Sequence[tuple[list[ast.stmt], dict[str, Known]]]) -> None:
        """Each of them may be taken. What is known behind them is what all agree on that come out at their end."""
        before, outs = dict(self.scope.known), []
        for body, known in ways:
            self.scope.known = dict(known or before)
            self.block(body)
            if not (body and isinstance(body[-1], _ENDS)):
                outs.append(self.scope.known)
        self.scope.known = outs[0] if outs else before
        for one in outs[1:]:
            self.scope.known = _merged(self.scope.known, one)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error tells is read by people: it has no say in what comes next."""
        self.reading.saying += 1
        self.generic_visit(node)
        self.reading.saying -= 1

    # ---- expressions

    def visit_Call(self, node: ast.Call) -> None:
        self._call(node, ordered=True)

    def _call(self, node: ast.Call, *, ordered: bool) -> None:
        """Not `ordered`: what it gives is handed to something that does not mind its order."""
        if isinstance(node.func, ast.Attribute):
            self.visit(node.func.value)
        elif not isinstance(node.func, ast.Name):
            self.visit(node.func)
        says = self.asked.called(node, ordered=ordered)
        any_order = takes_any_order(node, self.values) or (not ordered and keeps_order(node, self.values))
        self.reading.saying += says
        arguments = [*node.args, *(one.value for one in node.keywords)]
        for one in arguments:
            if isinstance(one, ast.ListComp | ast.GeneratorExp):
                self._comprehension(one, ordered=not any_order)
            elif isinstance(one, ast.Call):
                self._call(one, ordered=not any_order)
            elif isinstance(one, ast.Starred):
                self._spread(one)
            else:
                self.visit(one)
        self.reading.saying -= says

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.visit(node.value)
        self.asked.read(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.asked.read(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node, ordered=True)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node, ordered=True)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node, ordered=False)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        # What it gives is known to have that order: it counts where that is gone through.
        self._comprehension(node, ordered=False)

    def _comprehension(self, node: Comprehension, *, ordered: bool) -> None:
        for one in node.generators:
            with self.values.comprehending(node):
                self.visit(one.iter)
                if ordered and loose(one.iter, self.values):
                    self.reading.add("set-order", one.iter, f"a comprehension over {self._called(one.iter)}")
        inner = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        with self.values.comprehending(node):
            self.visit_all([*(test for one in node.generators for test in one.ifs), *inner])

    def visit_Set(self, node: ast.Set) -> None:
        self.visit_all(one.value if isinstance(one, ast.Starred) else one for one in node.elts)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._spread(node)

    def _spread(self, node: ast.Starred) -> None:
        self.visit(node.value)
        if loose(node.value, self.values):
            self.reading.add("set-order", node, f"unpacking of {self._called(node.value)}")

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self.visit(node.value)
        if loose(node.value, self.values):
            self.reading.add("set-order", node, f"yield from {self._called(node.value)}")

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        self.visit(node.value)
        if loose(node.value, self.values):
            self.reading.add("set-order", node.value, f"the text of {self._called(node.value)}")

    def _called(self, node: ast.expr) -> str:
        known = self.values.of(node)
        return "a set" if is_set(known) or is_view(known) else "a dict in the order of a set"


def _merged(one: dict[str, Known], other: dict[str, Known]) -> dict[str, Known]:
    return {
        name: merged(one[name], other[name]) if name in one and name in other else UNKNOWN for name in {**one, **other}
    }


def begin(fn: FunctionType, of: Known, own: Own, source: Source, node: Function, infer: Infer) -> Walk:
    """A walk of a function of the user's; `of` is what its first parameter is bound to, if anything."""
    scope = Scope.of(fn, node, own.names)
    said = facts.hints(fn)
    for one in parameters(node):
        scope.known[one.arg] = instance(said.get(one.arg, facts.ABSENT))
    for extra, kind in ((node.args.vararg, tuple), (node.args.kwarg, dict)):
        if extra is not None:
            scope.known[extra.arg] = Known(kind=kind)
    first = next(iter(parameters(node)), None)
    if first is not None and (of.live is not facts.ABSENT or of.kind is not facts.ABSENT):
        scope.known[first.arg] = of
    last = node.end_lineno or node.lineno
    reading = Reading(fn.__qualname__, source, fn.__code__.co_firstlineno, last)
    return Walk(scope, reading, own, infer, of.live if isinstance(of.live, type) else of.cls)
