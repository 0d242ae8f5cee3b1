"""What is asked of the world in an expression: by calling something, by reading it, by changing what is shared."""

from __future__ import annotations

import ast
import inspect
from collections import deque
from types import FunctionType, ModuleType

from outlive.lint.known import ABSENT, UNKNOWN, Known, member
from outlive.lint.orders import keeps_order, ordering
from outlive.lint.own import Own, factories
from outlive.lint.reading import Reading
from outlive.lint.rules import CLIENTS, LOGGERS, SAYS, VALUES, Rule, rule_of
from outlive.lint.scope import parameters
from outlive.lint.source import Function
from outlive.lint.values import Values, is_run

_CHANGE = frozenset(
    "append appendleft extend extendleft insert add update setdefault pop popleft popitem remove discard clear sort "
    "reverse rotate subtract intersection_update difference_update symmetric_difference_update".split()
)
_CONTAINERS = (list, dict, set, deque, bytearray)
# What a call of a durable method has as its first argument is not called here.
_HANDED = frozenset({"step", "call", "use"})


class Asked:
    """Tells a reading what it sees."""

    def __init__(self, reading: Reading, values: Values, own: Own) -> None:
        self._reading, self._values, self._own = reading, values, own

    def called(self, node: ast.Call, *, ordered: bool = True) -> bool:
        """Judge a call, where the order of what it gives counts or not.

        Whether what it is handed goes nowhere but into a log.
        """
        called = self._values.of(node.func)
        if (worth := self._says(called)) is not None:
            if worth:
                self._reading.add("log", node, f"{_shown(called, node)}()")
            return True
        for one, what in ordering(node, self._values) if ordered or not keeps_order(node, self._values) else ():
            self._reading.add("set-order", one, what)
        if is_run(called.of):
            self._of_run(node)
            return False
        rule = self._rule(called)
        if rule is not None and (rule.when is None or rule.when(node)):
            self._reading.add(rule.code, node, f"{_shown(called, node)}()", rule.remedy)
        elif rule is None:
            self._follow(called, node)
        self._changes(called, node)
        return False

    def read(self, node: ast.Name | ast.Attribute) -> None:
        """Judge what is read without being called."""
        known = self._values.of(node)
        if known.dotted in VALUES:
            rule = VALUES[known.dotted]
            self._reading.add(rule.code, node, known.dotted, rule.remedy)
        if isinstance(fn := known.reads, FunctionType) and self._own.has(fn):
            self._reading.leads(node, fn, known.of or UNKNOWN)

    def entered(self, node: ast.expr, known: Known) -> None:
        """Judge what a `with` runs on its way in and out."""
        if known.cls is None:
            return
        for name in ("__enter__", "__aenter__", "__exit__", "__aexit__"):
            for fn, of in self._own.reached(member(known, name, self._own.names)):
                self._reading.leads(node, fn, of)

    def changed(self, target: ast.expr, declared: set[str]) -> None:
        """Judge what something is stored in."""
        if isinstance(target, ast.Name):
            if target.id in declared:
                self._reading.add("global", target, f"global {target.id}")
        elif isinstance(target, ast.Attribute | ast.Subscript):
            base = self._values.of(target.value)
            # Of `self` in a method of something that is shared, too.
            if base.shared or isinstance(base.live, type | ModuleType):
                self._reading.add("global", target, f"a change of {ast.unparse(target)}")

    def only_said(self, node: Function) -> frozenset[str]:
        """The variables of a function that are read for a log alone, or for another such variable."""
        harmless: set[int] = set()
        loads: dict[str, list[ast.Name]] = {}
        feeds: list[tuple[str, ast.expr]] = []
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
                loads.setdefault(one.id, []).append(one)
            elif isinstance(one, ast.Call) and self._says(self._values.of(one.func)) is not None:
                harmless.update(id(inner) for given in [*one.args, *one.keywords] for inner in ast.walk(given))
            elif isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
                feeds.append((one.targets[0].id, one.value))
        handed = {one.arg for one in parameters(node)}
        found: set[str] = set()
        while True:
            more = {
                name for name, each in loads.items()
                if name in {one for one, _ in feeds} - handed and all(id(one) in harmless for one in each)
            } - found  # fmt: skip
            if not more:
                return frozenset(found)
            found |= more
            harmless.update(id(inner) for name, value in feeds if name in more for inner in ast.walk(value))

    # ---- calls

    def _of_run(self, node: ast.Call) -> None:
        """A branch of `run.map` runs here; what is handed to a step, a tool or another agent does not."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name == "map" and node.args:
            self._follow(self._values.of(node.args[0]), node.args[0])

    def _says(self, called: Known) -> bool | None:
        """Whether it writes to a log, and then whether that is worth a note."""
        if called.dotted in SAYS:
            return SAYS[called.dotted]
        cls = called.of.cls if called.of is not None else None
        if cls is not None and cls.__module__.partition(".")[0] in LOGGERS:
            return True
        return False if cls is not None and cls.__name__ == "QuietOnReplay" else None

    def _rule(self, called: Known) -> Rule | None:
        if (found := rule_of(called.dotted)) is not None:
            return found
        root, *way, name = called.dotted.split(".") if called.dotted.count(".") > 1 else ("", "")
        asks = name in CLIENTS.get(root, ()) and "types" not in way
        return Rule("network") if asks else None

    def _follow(self, called: Known, node: ast.AST) -> None:
        for fn, of in self._own.reached(called):
            self._reading.leads(node, fn, of)
        if isinstance(called.live, type) and isinstance(node, ast.Call):
            self._fills_in(called.live, node)

    def _fills_in(self, cls: type, node: ast.Call) -> None:
        """What a class makes for the fields that it is not given."""
        made = factories(cls)
        if not made or any(one.arg is None for one in node.keywords):
            return
        given = {one.arg for one in node.keywords}
        given |= set(list(inspect.getattr_static(cls, "__match_args__", ()))[: len(node.args)])
        for field, factory in made.items():
            if field in given:
                continue
            rule = rule_of(self._own.names.of(factory))
            if rule is not None:
                what = f"{cls.__name__}({field}=…), which is made by {self._own.names.of(factory)}()"
                self._reading.add(rule.code, node, what, rule.remedy)
            elif isinstance(factory, FunctionType) and self._own.has(factory):
                self._reading.leads(node, factory, UNKNOWN)

    def _changes(self, called: Known, node: ast.Call) -> None:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in _CHANGE:
            base = self._values.of(func.value)
            if base.shared and base.cls is not None and issubclass(base.cls, _CONTAINERS):
                self._reading.add("global", node, f"a change of {ast.unparse(func.value)}")
        elif called.dotted == "builtins.next" and node.args:
            given = self._values.of(node.args[0])
            if given.shared and given.live is not ABSENT and hasattr(given.live, "__next__"):
                self._reading.add("global", node, f"a change of {ast.unparse(node.args[0])}")


def _shown(called: Known, node: ast.Call) -> str:
    """What it is called by its makers, and by the code where that says more."""
    if called.dotted and not called.dotted.startswith("builtins."):
        return called.dotted
    return ast.unparse(node.func)
