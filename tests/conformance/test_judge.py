"""Each word comes out for what it stands for, and the worst one that applies wins."""

from __future__ import annotations

import pytest

from conformance.judge import Seen, Wanted, judge
from conformance.service import Effect

Act = tuple[str, dict[str, object]]
CHARGE: Act = ("charge", {"cents": 100})
SHIP: Act = ("ship", {"to": "Ada"})
BOTH = Wanted([CHARGE, SHIP])
UNDONE = Wanted([CHARGE, SHIP], ends="failed", told=False, fails_as="out of stock")


def effects(*acts: Act) -> list[Effect]:
    return [Effect("r1", act, args, "", f"r-{number}", "a", 0.0) for number, (act, args) in enumerate(acts, start=1)]


def told(*acts: Act) -> list[dict[str, object]]:
    return [{"act": act, "args": args, "receipt": f"r-{number}"} for number, (act, args) in enumerate(acts, start=1)]


CASES: dict[str, tuple[Wanted, list[Act], Seen]] = {
    "safe": (BOTH, [CHARGE, SHIP], Seen("succeeded", output=told(CHARGE, SHIP))),
    "an effect twice": (BOTH, [CHARGE, CHARGE, SHIP], Seen("blocked")),
    "an effect is missing": (BOTH, [CHARGE], Seen("succeeded", output=told(CHARGE, SHIP))),
    "the run is gone": (BOTH, [CHARGE], Seen("missing")),
    "other arguments": (BOTH, [("charge", {"cents": 1}), SHIP], Seen("succeeded", output=told(CHARGE, SHIP))),
    "an effect is not told": (BOTH, [CHARGE, SHIP, ("mail", {})], Seen("succeeded", output=told(CHARGE, SHIP))),
    "told and not done so": (BOTH, [CHARGE, SHIP], Seen("succeeded", output=told(SHIP, CHARGE))),
    "what may not be": (Wanted([CHARGE], never=[(SHIP[0], SHIP[1], "nobody agreed")]), [SHIP], Seen("running")),
    "nobody says anything": (BOTH, [CHARGE], Seen("running")),
    "the diagnosis says it": (BOTH, [CHARGE], Seen("running", trouble=["a lease has lapsed"])),
    "blocked": (BOTH, [CHARGE], Seen("blocked")),
    "failed": (BOTH, [CHARGE], Seen("failed")),
    "failed as wanted": (Wanted([CHARGE], ends="failed", told=False), [CHARGE], Seen("failed")),
    "failed by itself, not all undone": (UNDONE, [CHARGE], Seen("failed", "out of stock")),
    "failed by something else, not all undone": (UNDONE, [CHARGE], Seen("failed", "the undoing timed out")),
    "what may be missing": (
        Wanted([CHARGE, SHIP], may_miss=("ship",)),
        [CHARGE],
        Seen("succeeded", output=told(CHARGE)),
    ),
    "done and not told": (
        Wanted([CHARGE, SHIP], may_miss=("ship",)),
        [CHARGE, SHIP],
        Seen("succeeded", output=told(CHARGE)),
    ),
    "succeeded where it has to fail": (Wanted([CHARGE], ends="failed"), [CHARGE], Seen("succeeded")),
}
WORDS = {
    "safe": "safe",
    "an effect twice": "duplicate",
    "an effect is missing": "lost",
    "the run is gone": "lost",
    "other arguments": "silent",
    "an effect is not told": "silent",
    "told and not done so": "silent",
    "what may not be": "silent",
    "nobody says anything": "stuck",
    "the diagnosis says it": "visible-unknown",
    "blocked": "visible-unknown",
    "failed": "visible-unknown",
    "failed as wanted": "safe",
    "failed by itself, not all undone": "lost",
    "failed by something else, not all undone": "visible-unknown",
    "what may be missing": "safe",
    "done and not told": "silent",
    "succeeded where it has to fail": "silent",
}


@pytest.mark.parametrize("case", CASES)
def test_the_word(case: str) -> None:
    wanted, acts, seen = CASES[case]
    assert judge("r1", wanted, effects(*acts), seen).word == WORDS[case]


def test_effects_of_another_run_do_not_count() -> None:
    other = [Effect("r2", *CHARGE, "", "r-9", "a", 0.0)]
    found = judge("r1", Wanted([CHARGE]), effects(CHARGE) + other, Seen("succeeded", output=told(CHARGE)))
    assert found.word == "safe"
