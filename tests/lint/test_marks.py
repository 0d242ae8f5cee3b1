"""Comments that silence findings say why; and what is worth a note is no finding."""

import pytest

from outlive.lint.finding import Report
from tests.lint.conftest import Lint, agent, codes

BEFORE = "import time\nimport logging\n\ndef stamp() -> float:\n    return time.time()\n"


def notes(report: Report) -> list[str]:
    return [one.found.code for one in report.notes]


@pytest.mark.parametrize(
    "body",
    [
        "return time.time()  # outlive: replays - only shown to people",
        "return time.time()  # noqa: DTZ001 - ours  # outlive: replays - only shown to people",
        "return time.time()  # outlive: replays - only shown to people  # noqa: DTZ001",
        "return (\n    time.time()  # outlive: replays - only shown\n)",
        "return max(\n    time.time(),\n    1,\n)  # outlive: replays - only shown",
        "if time.time() > 0:  # outlive: replays - it always is\n    return 1",
        "return stamp()  # outlive: replays - only shown to people",
        "try:\n    await run.step(len, given)\nexcept BaseException:  # outlive: replays - nothing follows\n    pass",
        "tags = set(given)\nfor one in tags:  # outlive: replays - nothing is called in here\n    one.upper()",
    ],
)
def test_a_line_with_a_reason_is_vouched_for(lint: Lint, body: str) -> None:
    report = lint(agent(body, BEFORE))
    assert (codes(report), notes(report)) == ([], [])


@pytest.mark.parametrize(
    "body",
    [
        "return time.time()  # outlive: replays",
        "return time.time()  # outlive: replays -",
        "return time.time()  # outlive: replays - # noqa: DTZ001",
    ],
)
def test_one_without_a_reason_silences_nothing_and_is_found(lint: Lint, body: str) -> None:
    assert sorted(codes(lint(agent(body, BEFORE)))) == ["clock", "reason"]


@pytest.mark.parametrize(
    "body",
    [
        "one = 1  # outlive: replays - only shown\nreturn time.time()",
        "if given:  # outlive: replays - only shown\n    return time.time()",
        "text = '# outlive: replays - only shown'; return time.time()",
        "return time.time()  # outlive replays - only shown",
    ],
)
def test_another_line_is_not(lint: Lint, body: str) -> None:
    assert codes(lint(agent(body, BEFORE))) == ["clock"]


def test_a_comment_that_silences_nothing_is_worth_a_note(lint: Lint) -> None:
    report = lint(agent("return given  # outlive: replays - only shown", BEFORE))
    assert (codes(report), notes(report)) == ([], ["unused"])


def test_a_comment_elsewhere_in_the_file_is_nobodys(lint: Lint) -> None:
    report = lint(agent("return given", BEFORE + "AT = time.time()  # outlive: replays - at import\n"))
    assert (codes(report), notes(report)) == ([], [])


@pytest.mark.parametrize(
    "body",
    [
        "print(given)",
        "logging.info('%s', given)",
        "logging.getLogger(__name__).warning('%s', given)",
        "import warnings\nwarnings.warn(given)",
    ],
)
def test_what_is_said_again_is_worth_a_note(lint: Lint, body: str) -> None:
    report = lint(agent(body, BEFORE))
    assert (codes(report), notes(report)) == ([], ["log"])
    assert "run.log" in report.notes[0].found.advice


def test_the_log_of_the_run_is_not(lint: Lint) -> None:
    report = lint(agent("run.log.info('%s', time.time())\nlog = run.log\nlog.info('x')", BEFORE))
    assert (codes(report), notes(report)) == ([], [])


def test_what_acts_is_found_also_where_it_is_only_said(lint: Lint) -> None:
    assert codes(lint(agent("run.log.info('%s', open(given).read())"))) == ["file"]


def test_a_value_that_is_said_and_used_is_found(lint: Lint) -> None:
    assert codes(lint(agent("at = time.time()\nrun.log.info('%s', at)\nreturn at", BEFORE))) == ["clock"]
