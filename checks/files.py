"""Which files the checks read: what is written by hand, in the order of their paths."""

import ast
from collections.abc import Iterator
from pathlib import Path

MADE_BY_TOOLS = {".git", ".venv", ".envs", "__pycache__", "build", "dist", "node_modules"}


def written(root: Path, *suffixes: str, under: tuple[str, ...] = (".",)) -> Iterator[Path]:
    """Files below `root` with one of the suffixes (any, if none is given), caches left out."""
    for folder in under:
        for path in sorted((root / folder).rglob("*")):
            parts = path.relative_to(root).parts
            hidden = any(p in MADE_BY_TOOLS or p.endswith(("_cache", ".egg-info", ".hypothesis")) for p in parts)
            if path.is_file() and not hidden and (not suffixes or path.suffix in suffixes):
                yield path


def where(root: Path, path: Path, line: int | None = None) -> str:
    """The place as `path:line`, from the root."""
    place = path.relative_to(root).as_posix()
    return place if line is None else f"{place}:{line}"


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text("utf-8"), str(path))
