"""Nothing in the tree speaks of how it came about: no ticket numbers, no machine's paths, no notes to a colleague."""

import re
from pathlib import Path

from checks.files import where, written

FORBIDDEN = {
    "a ticket or part number": r"\b(?:issue|part|ticket|milestone)s? #?\d+\b",
    "a path of somebody's machine": r"/(?:work|root|home|Users)/\w+|/tmp/\w*brief|\.\./shared\b",
    "a file that is not here": r"\b(?:engine_rules|store_races)\b",
    "how the text was made": r"\bAI[- ](?:assistants?|generated)\b|\bas an AI\b|\bco-authored-by\b"
    r"|\bgenerated (?:by|with) (?:AI|Claude)\b|\bchatgpt\b|\bcopilot\b",
    "a word of the plan": r"\bthe brief\b|\bwalking skeleton\b|\bacceptance criteri(?:a|on)\b",
    "unfinished work": r"\btodo\b|\bfixme\b|\bxxx\b",
}
# These have to spell the words out.
SPELLED = {"checks/words.py", "tests/checks/test_words.py", "tests/checks/test_linters.py"}
PATTERNS = {what: re.compile(pattern, re.I) for what, pattern in FORBIDDEN.items()}


def problems(root: Path) -> list[str]:
    """Lines with words that belong in a tracker or a conversation, not in the tree."""
    found = []
    for path in written(root):
        if where(root, path) in SPELLED:
            continue
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, start=1):
            for what, pattern in PATTERNS.items():
                if hit := pattern.search(line):
                    found.append(f"{where(root, path, number)} {hit[0]!r}: {what}")
    return found
