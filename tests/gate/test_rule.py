"""The rule by which gate and live system agree finds each way in which they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outlive.gate.judged import Judged
from outlive.model.ids import RunId, Tenant
from outlive.model.run import Head, RunRow
from tests.gate.case import Case, Stand, breaks, same
from tests.gate.judging import disagree
from tests.gate.play import surprises
from tests.gate.releases import edited
from tests.gate.stage import Lived

_JUDGED = Judged(tenant="default", run="case", agent="order", version="1", status="waiting", verdict="same")
_BREAKS = replace(_JUDGED, verdict="breaks", entry=3, expected="quote()", found="estimate(), with ValueError: no")
_ADOPTION = replace(_BREAKS, verdict="needs adoption", remedies=("outlive adopt case --skip --at 3 --why …: gone",))


def _lived(**what: object) -> Lived:
    row = RunRow(
        Tenant("default"), RunId("case"), "order", "1", "succeeded", 1, Head(0, b""), 0, 0, "", RunId("case")
    )  # fmt: skip
    return replace(Lived("goes on", row), **what)  # type: ignore[arg-type]  # fields of it


_STOPPED = {"how": "diverges", "entry": 3, "has": "quote()", "asks": "estimate()", "choices": ("skip",)}


@pytest.mark.parametrize(
    ("judged", "lived"),
    [(_JUDGED, {}), (_JUDGED, {"how": "fails"}), (_BREAKS, _STOPPED), (_ADOPTION, _STOPPED)],
)
def test_they_agree(judged: Judged, lived: dict[str, object]) -> None:
    assert disagree(_lived(**lived), judged) == []


@pytest.mark.parametrize(
    ("judged", "lived"),
    [
        (_JUDGED, _STOPPED), (_JUDGED, {"how": "blocked"}), (_JUDGED, {"repeated": ["charge"]}), (_BREAKS, {}),
        (_BREAKS, {**_STOPPED, "entry": 4}), (_BREAKS, {**_STOPPED, "asks": "charge()"}),
        (_ADOPTION, {**_STOPPED, "choices": ()}), (_ADOPTION, {**_STOPPED, "choices": ("insert",)}),
        (_ADOPTION, {**_STOPPED, "choices": ("skip", "insert"), "adopted": ["insert"]}),
    ],
)  # fmt: skip
def test_they_do_not(judged: Judged, lived: dict[str, object]) -> None:
    assert disagree(_lived(**lived), judged)


def test_what_was_done_again_or_before_it_stopped_is_a_surprise() -> None:
    case = Case("", "", "order", (), Stand(""), same())
    assert surprises(case, _lived()) == []
    assert surprises(case, _lived(repeated=["charge"]))
    stops = replace(case, expected=breaks("quote(", "estimate("))
    assert surprises(stops, _lived(**_STOPPED)) == []
    assert surprises(stops, _lived(**_STOPPED, executed=["charge"]))
    assert surprises(stops, _lived(**{**_STOPPED, "has": "charge()"}))


def test_an_edit_has_one_place() -> None:
    assert edited("a b", [("a", "c")]) == "c b"
    for text in ("b", "a a"):
        with pytest.raises(AssertionError, match="is there"):
            edited(text, [("a", "c")])
