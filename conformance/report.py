"""The page of results, from what was recorded; it says nothing that did not come out of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.adapter import HERE, rows
from conformance.judge import BAD, WORDS, Word, twice
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

![Each way of using each engine, in each scenario](pictures/conformance.svg)

Read with care. Leases, and what others have in their place, are three seconds here, shorter than anybody would choose,
so that a takeover is seen within the time of a test. A verdict is about one way of using one version in one situation,
on one machine with two cores, and each engine was put to it by somebody who knows this one best. Where an engine has a
safer way of being used, that is a row of its own. The evidence for each verdict (what was done when, the effects, the
history) is in the JSON. A bad word about another engine counts only once it was seen twice: *2 of 3* says how often it
came out, *seen once* is no verdict yet, and what came out once in three is told below. An empty cell was not run.

"""
_BESIDE = """\
Other scenarios ran at the same time: read how these figures grow, not how large they are. What this project costs on a
machine that does nothing else is in [performance](performance.md)."""
_MEANING = {
    "duplicate": "acted upon more often than asked for",
    "lost": "said to have succeeded, and an effect is missing; or the run is gone",
    "silent": "said to have succeeded, and what was done is not what the code, the result or a person's approval says",
    "stuck": "not ended, and neither its status nor the engine's own diagnosis says that somebody has to look",
    "visible-unknown": "stands still or has failed, says so, and nothing was done too often: a person has to look",
    "safe": "every effect once, and the result tells them",
}
KINDS = {
    "nothing": "Before a service that ignores keys and cannot be asked",
    "keys": "Before a service that acts once per key",
    "asked": "Before a service that can be asked afterwards",
}


def write(folder: Path = RESULTS, page: Path = PAGE) -> int:
    page.write_text(text(recorded(folder)), "utf-8")
    return 0


def recorded(folder: Path) -> list[dict[str, Any]]:
    """What is known of each row, ours first, then in the order of the adapters; without the kit's own engine."""
    now = {row.name: row for row in rows()}
    found = [json.loads(file.read_text("utf-8")) for file in folder.glob("*.json")]
    found = [
        one | {name: getattr(now[one["row"]], name) for name in ("engine", "driven", "about", "same_as", "differs")}
        for one in found
        if one["adapter"] != "careless" and one["row"] in now
    ]
    order = list(now)
    return sorted(found, key=lambda one: (one["adapter"] != "outlive", order.index(one["row"])))


def text(known: Sequence[Mapping[str, Any]]) -> str:
    lines = [_HEAD, "| word | what was seen |", "|---|---|"]
    lines += [f"| *{word}* | {meaning} |" for word, meaning in _MEANING.items()]
    lines += ["", "## Engines", "", "| engine | versions | how it is driven |", "|---|---|---|", *_engines(known)]
    lines += ["", "## Rows", "", "| row | how it is used | recorded |", "|---|---|---|"]
    lines += [_row(one) for one in known]
    for kind, title in KINDS.items():
        shown = [one for one in known if one["service"] == kind]
        if shown:
            lines += ["", f"## {title}", "", *_table(shown)]
    lines += ["", "## One run of many turns", "", _BESIDE, "", *_growth(known)]
    lines += ["", "## Why", "", "What was seen where a verdict is not *safe*.", "", *_reasons(known)]
    lines += ["", "## Scenarios", "", "| scenario | what happens |", "|---|---|"]
    lines += [f"| {one.name} | {one.about} |" for one in SCENARIOS.values()]
    return "\n".join(lines) + "\n"


def _engines(known: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    for engine, driven in dict.fromkeys((one["engine"], one["driven"]) for one in known):
        results = [result for one in known if one["engine"] == engine for result in one["results"].values()]
        versions = sorted({result["version"] for result in results if result["version"]})
        yield f"| {engine} | {', '.join(versions)} | {_quoted(driven)} |"


def _row(one: Mapping[str, Any]) -> str:
    days = sorted({result["when"] for result in one["results"].values()})
    return f"| {one['row']} | {_quoted(one['about'])} | {', '.join(days)} |"


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
        same = one["same_as"] if SCENARIOS[scenario].group not in one["differs"] else ""
        return f"as {same}" if same else ""
    word = counted(one, result)
    if word is None:
        return "(seen once)"
    count = _times(word, result["words"])
    return f"**{word}**{count}" if word in BAD else f"{word}{count}"


def counted(one: Mapping[str, Any], result: Mapping[str, Any]) -> Word | None:
    """What may be said: the worst that was seen of ourselves, of another engine only what was seen twice."""
    words: list[Word] = result["words"]
    return min(words, key=WORDS.index) if one["adapter"] == "outlive" else twice(words)


def _times(word: Word, words: Sequence[Word]) -> str:
    """How often it came out so badly, where it was tried more than once."""
    as_bad = sum(one == word or (word in BAD and WORDS.index(one) < WORDS.index(word)) for one in words)
    return f" ({as_bad} of {len(words)})" if len(words) > 1 else ""


def _growth(known: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    name = "two-thousand-turns"
    yield "| row | verdict | what its store takes for a turn, and what a turn takes, as the run grows |"
    yield "|---|---|---|"
    for one in known:
        result = one["results"].get(name)
        if result and counted(one, result):
            yield f"| {one['row']} | {result['word']} | {'; '.join(result['notes']) or _quoted(result['why'])} |"


def _reasons(known: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    for one in known:
        told = [(name, one["results"][name]) for name in SCENARIOS if name in one["results"]]
        bad = [(name, result) for name, result in told if result["word"] != "safe" and counted(one, result)]
        if bad:
            yield f"- {one['row']}"
            yield from (
                f"    - {name}: *{result['word']}*{_once(one, result)}, {_quoted(result['why'])}"
                for name, result in bad
            )


def _once(one: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """That the evidence is of what came out once, and is not what the table says."""
    return "" if counted(one, result) == result["word"] else f" once in {len(result['words'])}"


def _quoted(words: str, most: int = 260) -> str:
    """Words of others and about them, which are not ours, in quotation marks, on one line."""
    said = " ".join(words.replace('"', "'").replace("|", "/").replace("`", "'").split())
    return f'"{said if len(said) <= most else said[: most - 1] + "…"}"'
