"""Run every check, or those named: `python -m checks sizes words`. Exit code 1 if any finds a problem."""

import sys
from collections.abc import Callable
from pathlib import Path

from checks import errors, glossary, ignores, port, sizes, sql, tasks, words

CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "sizes": sizes.problems,
    "ignores": ignores.problems,
    "tasks": tasks.problems,
    "words": words.problems,
    "glossary": glossary.problems,
    "sql": sql.problems,
    "errors": errors.problems,
    "port": port.problems,
}


def main(root: Path, names: list[str]) -> int:
    """Print one line per check and one per problem; return the exit code."""
    if unknown := sorted(set(names) - set(CHECKS)):
        print(f"No such check: {', '.join(unknown)}. There are: {', '.join(CHECKS)}.")
        return 2
    failed = False
    for name in names or CHECKS:
        found = CHECKS[name](root)
        failed = failed or bool(found)
        print(name if not found else f"{name}: {len(found)} to mend")
        for problem in found:
            print(f"  {problem}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent.parent, sys.argv[1:]))
