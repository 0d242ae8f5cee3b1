"""SQL is read by people: every statement has a name and says what it is for, and all stores have the same ones.

A statement in `queries.sql` is `-- name: claim_runs`, at least one line of comment, one statement ended by a semicolon.
Migrations are numbered without gaps and never edited: `migrations/hashes.txt` has `sha256  file` for each
(`sha256sum *.sql >hashes.txt`). Where two releases can share a database they are `NNNN_what.pre.sql` and, if something
is taken away, `NNNN_what.post.sql`.
"""

import hashlib
import re
from pathlib import Path

from checks.files import where

NAME = re.compile(r"^-- name: (.*)$")
QUOTED_OR_COMMENT = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.S)


def problems(root: Path) -> list[str]:
    """What is unnamed, undescribed or missing in the statements, and which migrations changed."""
    stores = sorted((root / "src" / "outlive" / "store").glob("*/queries.sql"))
    found = []
    names: dict[Path, set[str]] = {}
    for path in stores:
        defined, wrong = _statements(root, path)
        names[path] = defined
        found += wrong
    everywhere = set().union(*names.values())
    for path, defined in names.items():
        found += [f"{where(root, path)} has no statement {name}" for name in sorted(everywhere - defined)]
    for folder in sorted((root / "src" / "outlive" / "store").glob("*/migrations")):
        found += _migrations(root, folder)
    return found


def _statements(root: Path, path: Path) -> tuple[set[str], list[str]]:
    found, names, blocks = [], set[str](), list[tuple[int, str, list[str]]]()
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if opening := NAME.match(line):
            blocks.append((number, opening[1].strip(), []))
        elif blocks:
            blocks[-1][2].append(line)
        elif line.strip() and not line.startswith("--"):
            found.append(f"{where(root, path, number)} a statement without a name")
    for number, name, lines in blocks:
        place = where(root, path, number)
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            found.append(f"{place} {name!r} is not a name: lower case and underscores")
        if name in names:
            found.append(f"{place} {name} is there twice")
        names.add(name)
        found += [f"{place} {name} {wrong}" for wrong in _block_problems(lines)]
    return names, found


def _block_problems(lines: list[str]) -> list[str]:
    found = []
    if not lines or not re.match(r"-- \S", lines[0]):
        found.append("does not say what it is for in the line after its name")
    bare = QUOTED_OR_COMMENT.sub("", "\n".join(lines)).strip()
    if bare.count(";") != 1 or not bare.endswith(";"):
        found.append("is not one statement ended by a semicolon")
    return found


def _migrations(root: Path, folder: Path) -> list[str]:
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.sql"))}
    listing = folder / "hashes.txt"
    lines = listing.read_text("utf-8").splitlines() if listing.exists() else []
    recorded = {name.lstrip("*"): digest for digest, name in (line.split(maxsplit=1) for line in lines if line.strip())}
    place = where(root, folder)
    found = [f"{place}/{name} is not in hashes.txt" for name in files if name not in recorded]
    found += [f"{place}/{name} is in hashes.txt and does not exist" for name in recorded if name not in files]
    found += [
        f"{place}/{name} was changed after it was recorded: add a new migration instead"
        for name, digest in files.items()
        if recorded.get(name, digest) != digest
    ]
    for number, name in enumerate((name for name in files if not name.endswith(".post.sql")), start=1):
        if not re.match(rf"{number:04d}_[a-z0-9_]+(\.pre)?\.sql$", name):
            found.append(f"{place}/{name} should be {number:04d}_what_it_does.sql")
    found += [
        f"{place}/{name} has no {name.removesuffix('.post.sql')}.pre.sql"
        for name in files
        if name.endswith(".post.sql") and name.removesuffix(".post.sql") + ".pre.sql" not in files
    ]
    return found
