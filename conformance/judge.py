"""What a scenario has shown, as one word with its reason. Pure: everything that was seen is handed in."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from conformance.service import Effect

Word = Literal[
    "duplicate", "lost", "silent", "stuck", "visible-unknown", "safe", "not offered", "no verdict"
]  # fmt: skip
WORDS: tuple[Word, ...] = (
    "duplicate", "lost", "silent", "stuck", "visible-unknown", "safe", "not offered", "no verdict",
)  # fmt: skip
BAD = WORDS[:4]
Args = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a run stood when the kit looked for the last time: the adapter's status, and the engine's own words."""

    status: str
    says: str = ""
    output: Sequence[Mapping[str, object]] | None = None
    trouble: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What has to have happened when a run has ended as `ends`, and what may not have happened at all."""

    acts: Sequence[tuple[str, Args]]
    ends: Literal["succeeded", "failed"] = "succeeded"
    never: Sequence[tuple[str, Args, str]] = ()
    told: bool = True
    """Whether the result has to name every effect: not that of a run that has failed."""
    may_miss: Sequence[str] = ()
    """Acts that need not have been done."""
    fails_as: str = ""
    """What a run that has failed as it should says; with other words, it says that something else went wrong too."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The word, and why."""

    word: Word
    why: str
    notes: list[str] = field(default_factory=list)


def judge(run: str, wanted: Wanted, effects: Sequence[Effect], seen: Seen) -> Verdict:
    """The worst that applies to this run."""
    own = [one for one in effects if one.run == run]
    counted, allowed = Counter(one.act for one in own), Counter(act for act, _ in wanted.acts)
    if extra := [f"{act} {count} times" for act, count in sorted(counted.items()) if count > max(1, allowed[act])]:
        return Verdict("duplicate", f"{run}: {', '.join(extra)}")
    if seen.status == "missing":
        return Verdict("lost", f"{run}: the engine does not know it any more")
    for act, args, why in wanted.never:
        if any(one.act == act and _same(one.args, args) for one in own):
            return Verdict("silent", f"{run}: {why}")
    return _ended(run, wanted, own, seen) if seen.status == wanted.ends else _otherwise(run, seen)


def _otherwise(run: str, seen: Seen) -> Verdict:
    """It has not ended as it should: does the engine say so?"""
    if seen.status == "succeeded":
        return Verdict("silent", f"{run}: succeeded, and should not have")
    if seen.status in ("blocked", "failed"):
        return Verdict("visible-unknown", f"{run}: {seen.status}: {seen.says}")
    if seen.trouble:
        return Verdict("visible-unknown", f"{run}: {seen.status}, and the engine says: {'; '.join(seen.trouble)}")
    return Verdict("stuck", f"{run}: still {seen.status} ({seen.says})")


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The one that counts for all runs of a scenario."""
    return min(verdicts, key=lambda one: WORDS.index(one.word))


def twice(words: Sequence[Word]) -> Word | None:
    """What counts of everything that was seen: nothing bad that was not seen twice. None: look again."""
    ordered = sorted(words, key=WORDS.index)
    if ordered[0] not in BAD:
        return ordered[0]
    if len(ordered) == 1 or (len(ordered) == 2 and ordered[1] not in BAD):
        return None
    return ordered[1]


def _ended(run: str, wanted: Wanted, own: Sequence[Effect], seen: Seen) -> Verdict:
    done = Counter(_spelled(one.act, one.args) for one in own)
    needed = [(act, args) for act, args in wanted.acts if act not in wanted.may_miss]
    if missing := Counter(act for act, _ in needed) - Counter(one.act for one in own):
        if wanted.fails_as not in seen.says:
            return _otherwise(run, seen)
        return Verdict("lost", f"{run}: {seen.status}, and nobody did {', '.join(sorted(missing))}")
    if wanted.told:
        said = Counter(_said(one) for one in seen.output or ())
        real = Counter((_spelled(one.act, one.args), one.receipt) for one in own)
        if untold := real - said:
            return Verdict("silent", f"{run}: {seen.status}, and its result does not say: {_listed(untold)}")
        if untrue := said - real:
            return Verdict("silent", f"{run}: {seen.status}, and its result says what was not done: {_listed(untrue)}")
    if other := Counter(_spelled(*one) for one in needed) - done:
        return Verdict("silent", f"{run}: {seen.status}, and not as its code has it: {', '.join(sorted(other))}")
    return Verdict("safe", f"{run}: {seen.status}, each effect once")


def _same(one: Args, other: Args) -> bool:
    return _spelled("", one) == _spelled("", other)


def _spelled(act: str, args: Args) -> str:
    return f"{act}({json.dumps(args, sort_keys=True)})"


def _said(call: Mapping[str, object]) -> tuple[str, str]:
    args = call.get("args")
    return _spelled(str(call.get("act")), args if isinstance(args, dict) else {}), str(call.get("receipt"))


def _listed(counted: Counter[tuple[str, str]]) -> str:
    return ", ".join(f"{what} as {receipt}" for what, receipt in sorted(counted)[:4])
