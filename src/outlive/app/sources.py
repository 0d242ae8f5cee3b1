"""Which source files an application's code is, and a digest of them that does not depend on where they are installed.

A package is taken whole, as it is on disk, so that processes which have imported different parts of it agree.
"""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages")


@lru_cache(maxsize=32)
def source_digest(files: frozenset[str]) -> bytes:
    """A digest of the code that belongs together with these files, as it is when it is first asked for."""
    found: set[tuple[str, bytes]] = set()
    for file in files:
        path = Path(file).resolve()
        if (root := _package_of(path)) is not None:
            found |= {_named(one, root.parent) for one in root.rglob("*.py")}
        else:
            beside = set() if path.parent.name in _INSTALLED else _imported_from(path.parent)
            found |= {_named(one, path.parent) for one in {path, *beside} if one.exists()}
    digest = hashlib.sha256()
    for name, content in sorted(found):
        digest.update(f"{name}:{content.hex()};".encode())
    return digest.digest()


def _named(file: Path, root: Path) -> tuple[str, bytes]:
    return file.relative_to(root).as_posix(), hashlib.sha256(file.read_bytes()).digest()


def _package_of(file: Path) -> Path | None:
    """The outermost package that a file is in."""
    found = None
    for directory in file.parents:
        if not (directory / "__init__.py").exists():
            break
        found = directory
    return found


def _imported_from(directory: Path) -> set[Path]:
    """The source files of modules that were imported from below a directory, without what is installed there."""
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py"):
            continue
        path = Path(file).resolve()
        if not path.is_relative_to(directory):
            continue
        parts = path.relative_to(directory).parts
        if not any(part in _INSTALLED or part.startswith(".") for part in parts):
            found.add(path)
    return found
