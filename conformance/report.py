"""The page of results, from what was recorded; it says nothing that did not come out of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.adapter import HERE, rows
from conformance.judge import WORDS, Word
from conformance.runner import RESULTS
from conformance.scenarios import SCENARIOS

PAGE = HERE.parent / "docs" / "comparison.md"
_HEAD = """# Comparison

What durable engines do when their processes are killed, as counted by an outside service. This page is written by
`python -m conformance report` from [recorded runs](../conformance/results); nothing here was typed by hand. How it is
done, and how to put an engine of your own to it, is in the [kit](../conformance/README.md).

```sh
make conformance        # every row here, an hour or more
make conformance-self   # this project's own rows
python -m conformance run --row dbos-plain --scenario killed-after-act --verbose
```

Read with care. Leases, and what others have in their place, are three seconds here, shorter than anybody would choose,
so that a takeover is seen within the time of a test. A verdict is about one way of using one version in one situation,
on one small and busy machine, and each engine was put to it by somebody who knows this one best. The evidence for each
(what was done when, the effects, the history) is in the JSON. A bad word about another engine counts only once it was
seen twice: *2 of 2* says how often, the worst is shown, and *seen once* is no verdict yet. An empty cell was not run.

"""
_MEANING = {
    "duplicate": "acted upon more often than asked for",
    "lost": "said to have succeeded, and an effect is missing; or the run is gone",
    "silent": "said to have succeeded, and what was done is not what the code, the result or a person's approval says",
    "stuck": "not ended, and neither its status nor the engine's own diagnosis says that somebody has to look",
    "visible-unknown": "stands still or has failed, says so, and nothing was done too often: a person has to look",
    "safe": "every effect once, and the result tells them",
}
BAD = WORDS[:4]
_KINDS = {
    "nothing": "Before a service that ignores keys and cannot be asked",
    "keys": "Before a service that acts once per key",
    "asked": "Before a service that can be asked afterwards",
}


def write(folder: Path = RESULTS, page: Path = PAGE) -> int:
    page.write_text(text(recorded(folder)), "utf-8")
    return 0


def recorded(folder: Path) -> list[dict[str, Any]]:
    """What is known of each row, ours first, then in the order of the adapters; without the kit's own engine."""
    order = {row.name: number for number, row in enumerate(rows())}
    found = [json.loads(file.read_text("utf-8")) for file in folder.glob("*.json")]
    found = [one for one in found if one["adapter"] != "careless" and one["row"] in order]
    return sorted(found, key=lambda one: (one["adapter"] != "outlive", order[one["row"]]))


def text(known: Sequence[Mapping[str, Any]]) -> str:
    lines = [_HEAD, "| word | what was seen |", "|---|---|"]
    lines += [f"| *{word}* | {meaning} |" for word, meaning in _MEANING.items()]
    lines += ["", "## Rows", "", "| row | engine | how it is used | versions | recorded |", "|---|---|---|---|---|"]
    lines += [_row(one) for one in known]
    for kind, title in _KINDS.items():
        shown = [one for one in known if one["service"] == kind]
        if shown:
            lines += ["", f"## {title}", "", *_table(shown)]
    lines += ["", "## One run of many turns", "", *_growth(known)]
    lines += ["", "## Why", "", "What was seen where a verdict is not *safe*.", "", *_reasons(known)]
    lines += ["", "## Scenarios", "", "| scenario | what happens |", "|---|---|"]
    lines += [f"| {one.name} | {one.about} |" for one in SCENARIOS.values()]
    return "\n".join(lines) + "\n"


def _row(one: Mapping[str, Any]) -> str:
    results = one["results"].values()
    versions = sorted({result["version"] for result in results if result["version"]})
    days = sorted({result["when"] for result in results})
    return f"| {one['row']} | {one['engine']} | {_quoted(one['about'])} | {', '.join(versions)} | {', '.join(days)} |"


def _table(shown: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """A line per scenario that any of these rows was put to itself, a column per row."""
    yield "| scenario | " + " | ".join(one["row"] for one in shown) + " |"
    yield "|---|" + "---|" * len(shown)
    for name in SCENARIOS:
        cells = [_cell(one, name) for one in shown]
        if any(name in one["results"] for one in shown):
            yield f"| {name} | " + " | ".join(cells) + " |"


def _cell(one: Mapping[str, Any], scenario: str) -> str:
    result = one["results"].get(scenario)
    if result is None:
        same = one["same_as"] if SCENARIOS[scenario].group in ("code", "waits", "size") else ""
        return f"as {same}" if same else ""
    if not counts(one, result):
        return "(seen once)"
    word = _worst(result)
    count = f" ({result['words'].count(word)} of {len(result['words'])})" if len(result["words"]) > 1 else ""
    return f"**{word}**{count}" if word in BAD else f"{word}{count}"


def counts(one: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Whether this may be said: a bad word about another engine only when it was seen twice."""
    return one["adapter"] == "outlive" or _worst(result) not in BAD or len(result["words"]) > 1


def _worst(result: Mapping[str, Any]) -> Word:
    words: list[Word] = result["words"]
    return min(words, key=WORDS.index)


def _growth(known: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    name = "two-thousand-turns"
    yield "| row | verdict | what its store takes for a turn, and what a turn takes, as the run grows |"
    yield "|---|---|---|"
    for one in known:
        result = one["results"].get(name)
        if result and counts(one, result):
            yield f"| {one['row']} | {result['word']} | {'; '.join(result['notes']) or _quoted(result['why'])} |"


def _reasons(known: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    for one in known:
        told = [(name, one["results"][name]) for name in SCENARIOS if name in one["results"]]
        bad = [(name, result) for name, result in told if result["word"] != "safe" and counts(one, result)]
        if bad:
            yield f"- {one['row']}"
            yield from (f"    - {name}: *{result['word']}*, {_quoted(result['why'])}" for name, result in bad)


def _quoted(words: str) -> str:
    """Words of others, in quotation marks, on one line."""
    said = " ".join(words.replace('"', "'").replace("|", "/").replace("`", "'").split())
    return f'"{said[:220]}"'
