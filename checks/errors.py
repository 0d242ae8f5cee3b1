"""The error tree drawn at the top of `model/errors.py` is the tree of the classes below it.

A drawn line is a class name alone, or with two spaces and a note after it; depth is the column of the name.
"""

import ast
import re
from pathlib import Path

from checks.files import parsed, where

DRAWN = re.compile(r"^([\s│├└─|`*+-]*)([A-Z]\w+)(?:\s{2,}.*)?$")


def problems(root: Path) -> list[str]:
    """Where the drawn tree and the real one differ."""
    path = root / "src" / "outlive" / "model" / "errors.py"
    if not path.exists():
        return []
    module = parsed(path)
    drawn, real = drawn_tree(ast.get_docstring(module) or ""), real_tree(module)
    place = where(root, path)
    found = [f"{place} {name} is not drawn" for name in real if name not in drawn]
    found += [f"{place} {name} is drawn and does not exist" for name in drawn if name not in real]
    for name in drawn.keys() & real.keys():
        if drawn[name] not in (real[name], None if real[name] in ("Exception", "BaseException") else real[name]):
            found.append(f"{place} {name} is drawn under {drawn[name]}, its base is {real[name]}")
    return sorted(found)


def drawn_tree(docstring: str) -> dict[str, str | None]:
    """Each class in a drawing with the class it hangs from, None for a root; builtin roots are left out."""
    tree: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in docstring.splitlines():
        if drawn := DRAWN.match(line):
            column = len(drawn[1])
            while above and above[-1][0] >= column:
                above.pop()
            tree[drawn[2]] = above[-1][1] if above else None
            above.append((column, drawn[2]))
    return {name: parent for name, parent in tree.items() if name not in ("Exception", "BaseException")}


def real_tree(module: ast.Module) -> dict[str, str]:
    """Each exception class of a module with its first base that is an exception of the module, or its builtin base."""
    tree: dict[str, str] = {}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            known = [base for base in bases if base in tree]
            builtin = [base for base in bases if base in ("Exception", "BaseException")]
            if known or builtin:
                tree[node.name] = (known or builtin)[0]
    return tree
