"""Which files the checks read: what is written by hand, in the order of their paths."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

MADE_BY_TOOLS = {".git", ".venv", ".envs", "__pycache__", "build", "dist", "node_modules"}


def written(root: Path, *suffixes: str, under: tuple[str, ...] = (".",)) -> Iterator[Path]:
    """Files below `root` with one of the suffixes (any, if none is given), caches left out."""
    for folder in under:
        found: list[Path] = []
        for place, folders, names in os.walk(root / folder):
            # Not walked into: environments hold more files than everything else.
            folders[:] = [name for name in folders if not _made(name)]
            found += [Path(place) / name for name in names if not _made(name)]
        yield from (path for path in sorted(found) if path.is_file() and (not suffixes or path.suffix in suffixes))


def _made(name: str) -> bool:
    return name in MADE_BY_TOOLS or name.endswith(("_cache", ".egg-info", ".hypothesis"))


def where(root: Path, path: Path, line: int | None = None) -> str:
    """The place as `path:line`, from the root."""
    place = path.relative_to(root).as_posix()
    return place if line is None else f"{place}:{line}"


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text("utf-8"), str(path))
