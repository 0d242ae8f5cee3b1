"""What was read of one function: what is wrong in it, what it calls, what it gives."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from types import FunctionType

from outlive.lint.finding import GIVES_VALUES, Found, Place
from outlive.lint.known import UNKNOWN, Known
from outlive.lint.source import Source


@dataclass(frozen=True, slots=True)
class Led:
    """A call into a function of the user's. `of` is what its first parameter is bound to, if anything."""

    fn: FunctionType
    of: Known
    place: Place


@dataclass(slots=True)
class Reading:
    """Filled by a walk. Lines that are marked are vouched for: nothing is found there, and no call is followed."""

    name: str
    source: Source
    first: int
    last: int
    found: list[Found] = field(default_factory=list)
    calls: list[Led] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    """The marks that have silenced something."""
    gives: Known = UNKNOWN
    quiet: int = 0
    """Above 0: it is only looked at to learn what variables stand for."""
    saying: int = 0
    """Above 0: what is read goes nowhere but into a log."""
    statement: ast.stmt | None = None

    def place(self, node: ast.AST) -> Place:
        """Where it is."""
        return Place(self.source.file, getattr(node, "lineno", self.first), getattr(node, "col_offset", 0) + 1)

    def add(self, code: str, node: ast.AST, what: str, remedy: str = "") -> None:
        """Something was found; unless it is silenced."""
        if self.quiet or (self.saying and code in GIVES_VALUES) or self.silenced(node):
            return
        place = self.place(node)
        one = Found(code, place, self.source.line(place.line), what, remedy)
        if one not in self.found:
            self.found.append(one)

    def leads(self, node: ast.AST, fn: FunctionType, of: Known) -> None:
        """A function of the user's is called."""
        if not self.quiet and not self.silenced(node):
            self.calls.append(Led(fn, of, self.place(node)))

    def silenced(self, node: ast.AST) -> bool:
        """Whether a comment with a reason is on its lines, or on the last one of its statement."""
        marks = self.source.marks
        if not marks:
            return False
        first = getattr(node, "lineno", 0)
        block = isinstance(node, ast.ExceptHandler | ast.stmt) and hasattr(node, "body")
        lines = {first} if block else set(range(first, (getattr(node, "end_lineno", first) or first) + 1))
        if self.statement is not None:
            lines.add(_last_line(self.statement))
        here = {line for line in lines if marks.get(line)}
        if not self.quiet:
            self.used |= here
        return bool(here)


def _last_line(statement: ast.stmt) -> int:
    """The last line of a statement, of one with a block that of what is before the block."""
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        first: ast.stmt = body[0]
        return max(statement.lineno, first.lineno - 1)
    return statement.end_lineno or statement.lineno
