"""Source as it is on disk: the syntax of a live function, and the comments that silence findings."""

from __future__ import annotations

import ast
import io
import linecache
import re
import tokenize
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_MARK = re.compile(r"#\s*outlive:\s*replays\b(?:\s*[-\u2013\u2014:]\s*([^#]*))?")


@dataclass(frozen=True, slots=True)
class Source:
    """A file, parsed. `marks` has the reason of each comment that silences a finding, by line; empty: none given."""

    file: str
    lines: tuple[str, ...]
    functions: dict[tuple[int, str], list[Function]]
    marks: dict[int, str] = field(default_factory=dict)

    def line(self, number: int) -> str:
        """A line without what is around it; empty where there is none."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""


@lru_cache(maxsize=512)
def source_of(file: str) -> Source | None:
    """The file, or None where it cannot be read as Python."""
    lines = linecache.getlines(file)
    if not lines:
        return None
    text = "".join(lines)
    try:
        tree = ast.parse(text)
        marks = _marks(text)
    except (SyntaxError, ValueError, tokenize.TokenError):
        return None
    functions: dict[tuple[int, str], list[Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # As a code object counts: from its first decorator.
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            functions.setdefault((first, node.name), []).append(node)
        elif isinstance(node, ast.Lambda):
            functions.setdefault((node.lineno, "<lambda>"), []).append(node)
    return Source(file, tuple(lines), functions, marks)


def syntax_of(code: CodeType) -> tuple[Source, Function] | None:
    """The syntax of a function, or None where it is not to be had, or where two could be meant."""
    source = source_of(code.co_filename)
    if source is None:
        return None
    found = source.functions.get((code.co_firstlineno, code.co_name), [])
    return (source, found[0]) if len(found) == 1 else None


def _marks(text: str) -> dict[int, str]:
    if "outlive:" not in text:
        return {}
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (mark := _MARK.search(token.string)):
            found[token.start[0]] = (mark[1] or "").strip()
    return found
