"""Size budgets: small functions, files that can be read in one sitting, few public names.

A file may be longer if `checks/long_files.txt` gives the reason: `path: reason`, one per line.
"""

import ast
import math
from pathlib import Path

from checks.files import parsed, where, written

FUNCTION_LINES = 100
FUNCTION_LINES_P95 = 50
FILE_LINES = 500
PUBLIC_NAMES = 12
TREES = ("src", "tests", "examples", "checks", "bench", "conformance")


def problems(root: Path) -> list[str]:
    """Functions, files and the public surface that are over their budget."""
    return [*_long_functions(root), *_long_files(root), *_public_names(root)]


def _long_functions(root: Path) -> list[str]:
    found = []
    lengths = []
    for path in written(root, ".py", under=TREES):
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno is None:
                continue
            lines = node.end_lineno - node.lineno + 1
            if path.is_relative_to(root / "src"):
                lengths.append(lines)
            if lines > FUNCTION_LINES:
                found.append(
                    f"{where(root, path, node.lineno)} {node.name} has {lines} lines, {FUNCTION_LINES} at most"
                )
    if (p95 := percentile(lengths, 95)) > FUNCTION_LINES_P95:
        found.append(f"src: 95 in 100 functions have up to {p95} lines, {FUNCTION_LINES_P95} at most")
    return found


def percentile(values: list[int], share: int) -> int:
    """The smallest value that `share` per cent of the values do not exceed; 0 for no values."""
    return sorted(values)[math.ceil(len(values) * share / 100) - 1] if values else 0


def _long_files(root: Path) -> list[str]:
    reasons = root / "checks" / "long_files.txt"
    excused: dict[str, str] = {}
    for line in reasons.read_text("utf-8").splitlines() if reasons.exists() else []:
        name, _, reason = line.partition(":")
        excused[name.strip()] = reason.strip()
    found = [f"checks/long_files.txt: no reason is given for {name}" for name, why in excused.items() if not why]
    long = set()
    for path in written(root, ".py", under=TREES):
        name = where(root, path)
        if (lines := len(path.read_text("utf-8").splitlines())) > FILE_LINES:
            long.add(name)
            if name not in excused:
                found.append(f"{name} has {lines} lines, {FILE_LINES} at most")
    found += [f"checks/long_files.txt: {name} is not long" for name in excused if name not in long]
    return found


def _public_names(root: Path) -> list[str]:
    surface = root / "src" / "outlive" / "__init__.py"
    names = exported(surface) if surface.exists() else None
    if names is None:
        return [f"{where(root, surface)} must list its names in __all__, as literals"]
    if len(names) > PUBLIC_NAMES:
        return [f"{where(root, surface)} exports {len(names)} names, {PUBLIC_NAMES} at most"]
    return []


def exported(path: Path) -> list[str] | None:
    """The names in `__all__` of a module, None if it has none that can be read."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            try:
                return [str(name) for name in ast.literal_eval(node.value)]
            except ValueError:
                return None
    return None
