"""A checker is silenced only by code and with a reason, and never in the core.

The form is `# noqa: CODE - reason` (also `type: ignore[code] - reason`, `pyright: ignore[code] - reason`).
"""

import re
import tokenize
from pathlib import Path

from checks.files import where, written

CORE = ("model", "log", "policy", "engine", "store/port.py")
SILENCES = re.compile(r"#\s*(noqa|type:\s*ignore|pyright:\s*(?:ignore|basic|strict)|mypy:\s*ignore-errors)\b(.*)", re.I)
REASONED = re.compile(r"\s*(?:\[[\w, -]+\]|:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)\s*(?:-|—|#)\s*\S.{8,}")


def problems(root: Path) -> list[str]:
    """Comments that silence a checker without code and reason, or anywhere in the core."""
    found = []
    for path in written(root, ".py", under=("src", "tests", "examples", "checks", "bench", "conformance")):
        core = any(path.is_relative_to(root / "src" / "outlive" / room) for room in CORE)
        for line, comment in _comments(path):
            silence = SILENCES.search(comment)
            if silence is None:
                continue
            place = where(root, path, line)
            if core and silence[1].lower() != "noqa":
                found.append(f"{place} silences a type checker in the core: mend the types")
            elif not REASONED.match(silence[2]):
                found.append(f"{place} silences a checker without code and reason: `# noqa: CODE - reason`")
    return found


def _comments(path: Path) -> list[tuple[int, str]]:
    with tokenize.open(path) as file:
        tokens = tokenize.generate_tokens(file.readline)
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
