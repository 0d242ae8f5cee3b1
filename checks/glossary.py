"""One word per idea: what the glossary says not to say is said nowhere in code, SQL or docs.

The words come from the last column of the table in `docs/glossary.md`. In prose, a word in double quotes is talked
about, not used, and passes.
"""

import re
from pathlib import Path

from checks.files import where, written

# Settings of PostgreSQL and of uvicorn, names of the SDKs of MCP, Claude and OpenAI agents, and classes of clients: not
# ours to choose.
THEIRS = re.compile(
    r"idle_in_transaction_session_timeout|timeout_graceful_shutdown"
    r"|SessionMessage|\.session\.send_request|Session terminated"
    r"|(Outlive)?Session(Store|Key|List|Summary)\w*|(fold|list|delete)_session(s|_\w+)\b|(run_)?session_(id|store)\w*"
    r"|\b(?:Durable|Client|Async)?Session\b|\bSessionSettings\b|\bsession_(?:id|settings)\b|\bclear_session\b|\bsession=(?:session\b)?|\bsession:"
)
ROW = re.compile(r"^\|(.+)\|(.+)\|(.+)\|\s*$")


def problems(root: Path) -> list[str]:
    """Lines that use a word the glossary replaces."""
    glossary = root / "docs" / "glossary.md"
    if not glossary.exists():
        return [f"{where(root, glossary)} is missing"]
    banned = replaced(glossary.read_text("utf-8"))
    if not banned:
        return [f"{where(root, glossary)} has no table with words not to say"]
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, sorted(banned, key=len, reverse=True))) + r")(?:s|es)?\b")
    found = []
    for path in _read(root, glossary):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            text = re.sub(r'"[^"]*"', "", line) if path.suffix == ".md" else line
            text = THEIRS.sub("", text)
            for hit in pattern.finditer(spaced(text)):
                found.append(f"{where(root, path, number)} {hit[1]!r}: say {banned[hit[1]]!r}")
    return found


def replaced(table: str) -> dict[str, str]:
    """Each word not to say, in lower case, with the word to say instead."""
    words = {}
    for line in table.splitlines():
        if row := ROW.match(line):
            say = row[1].replace("*", "").strip()
            words.update({spaced(word): say for word in re.findall(r"`([^`]+)`", row[3])})
    return words


def spaced(text: str) -> str:
    """The words of a text or identifier apart and in lower case: `WorkflowId`, `workflow_id` are `workflow id`."""
    return re.sub(r"[_-]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)).lower()


def _read(root: Path, glossary: Path) -> list[Path]:
    trees = written(root, ".py", ".sql", ".md", under=("src", "examples", "docs"))
    top = sorted(root.glob("*.md"))
    return [path for path in [*trees, *top] if path != glossary]
