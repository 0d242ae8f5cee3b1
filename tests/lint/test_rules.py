"""Each rule finds what it is about, and leaves alone what looks like it: the cases are in files, one for each code."""

import pytest

from outlive.lint.finding import CODES, NOTES
from tests.lint.conftest import CASES, Lint, agent, cases, codes

# Those that have tests of their own.
ELSEWHERE = {"set-order", "reason", *NOTES}


@pytest.mark.parametrize(
    ("code", "kind", "before", "body"),
    [
        pytest.param(code, *one.values, id=f"{code}-{one.id}")
        for code in sorted(CODES.keys() - ELSEWHERE)
        for one in cases(code)
    ],
)
def test_what_is_wrong_is_found_and_what_looks_like_it_is_not(
    lint: Lint, code: str, kind: str, before: str, body: str
) -> None:
    assert codes(lint(agent(body, before))) == ([code] if kind == "found" else [])


@pytest.mark.parametrize("code", sorted(CODES.keys() - ELSEWHERE))
def test_every_rule_has_both(code: str) -> None:
    assert {one.values[0] for one in cases(code)} == {"found", "fine"}


def test_no_file_of_cases_is_left_over() -> None:
    assert {one.stem for one in CASES.iterdir()} == {*(CODES.keys() - ELSEWHERE), "reaching"}
