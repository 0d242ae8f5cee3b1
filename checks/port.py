"""A port stays small and its docstrings are its contract: at most 15 public methods per protocol, each documented."""

import ast
from pathlib import Path

from checks.files import parsed, where

METHODS = 15
PORTS = ("store/port.py", "sandbox/port.py")


def problems(root: Path) -> list[str]:
    """Protocols in the ports that are too wide, and methods without a contract."""
    found = []
    for port in PORTS:
        path = root / "src" / "outlive" / port
        if not path.exists():
            continue
        for protocol in _protocols(parsed(path)):
            place = f"{where(root, path, protocol.lineno)} {protocol.name}"
            methods = [
                node
                for node in protocol.body
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
            ]
            if len(methods) > METHODS:
                found.append(f"{place} has {len(methods)} public methods, {METHODS} at most")
            if not ast.get_docstring(protocol):
                found.append(f"{place} has no docstring")
            found += [f"{place}.{method.name} has no docstring" for method in methods if not ast.get_docstring(method)]
    return found


def _protocols(module: ast.Module) -> list[ast.ClassDef]:
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    return [node for node in classes if any(_name(base) == "Protocol" for base in node.bases)]


def _name(base: ast.expr) -> str:
    match base:
        case ast.Subscript(value=value):
            return _name(value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""
