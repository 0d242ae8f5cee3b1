"""Tasks live in task groups; only the engine, and one file of a store, may start one outside a group: they answer for
its end.

A linter can ban a call for a whole tree or allow it for a file, but then allows that file the real clock as well.
"""

import ast
from pathlib import Path

from checks.files import parsed, where, written

BANNED = {"create_task", "ensure_future", "gather", "run_coroutine_threadsafe"}
ALLOWED = ("src/outlive/engine", "src/outlive/store/postgres/tasks.py")


def problems(root: Path) -> list[str]:
    """Uses of asyncio's bare task functions outside the places that may."""
    found = []
    for path in written(root, ".py", under=("src", "examples")):
        if any(path.is_relative_to(root / allowed) for allowed in ALLOWED):
            continue
        for node in ast.walk(parsed(path)):
            for line, name in _bare_tasks(node):
                found.append(f"{where(root, path, line)} asyncio.{name}: use asyncio.TaskGroup")
    return found


def _bare_tasks(node: ast.AST) -> list[tuple[int, str]]:
    match node:
        case ast.Attribute(value=ast.Name(id="asyncio"), attr=name, lineno=line) if name in BANNED:
            return [(line, name)]
        case ast.ImportFrom(module="asyncio", names=names, lineno=line):
            return [(line, alias.name) for alias in names if alias.name in BANNED]
        case _:
            return []
