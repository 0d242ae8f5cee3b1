"""`send`, `questions` and `answer`: what people say to a run without its application."""

import asyncio
import json
from pathlib import Path

import pytest

from outlive.app.compose import open_store, worker_of
from outlive.app.settings import Settings
from outlive.cli import codes
from outlive.model.clock import SystemClock
from tests.cli import agents_app
from tests.cli.conftest import Cli
from tests.engine.rig import Nothing


@pytest.fixture
def sold(cli: Cli) -> Cli:
    """The run `r1` waits for an answer, unloaded, and nobody serves it."""
    assert cli("start", "sells", "lamp", "--id", "r1").exit_code == codes.OK
    work()
    return cli


def work() -> None:
    """Drive what can be claimed, then be gone."""

    async def go() -> None:
        settings, clock = Settings.load(None), SystemClock()
        store = await open_store(settings, clock, existing=True)
        worker = worker_of(agents_app.app.registry, store, settings, clock, None, secrets=Nothing())
        while await worker.claim():
            await worker.idle()
        await store.close()

    asyncio.run(go())


def status(cli: Cli) -> str:
    return str(json.loads(cli("show", "r1", "--json").stdout)["run"]["status"])


def test_a_run_is_answered_and_sent_to_until_it_ends(sold: Cli) -> None:
    [question] = json.loads(sold("questions", "--json").stdout)
    assert (question["run"], question["question"], question["role"]) == ("r1", "Sell lamp?", "owner")
    assert (question["expects"], question["answered_by"], question["until"]) == ("bool", None, None)
    assert f"question:    Sell lamp? (to owner, {question['id']})\n" in sold("show", "r1").stdout
    done = sold("answer", "r1", question["id"], "true", "--who", "ada")
    assert (done.exit_code, done.stdout) == (codes.OK, "")
    assert done.stderr == f"answered {question['id']} of run r1 as ada: Sell lamp?\n"
    assert "answered by ada, not read yet" in sold("questions").stdout
    work()
    assert sold("questions").stderr == "no open questions\n"
    done = sold("send", "r1", "offers", '{"item": "lamp", "count": 2}', "--key", "m1")
    assert (done.exit_code, done.stderr) == (codes.OK, "sent to run r1 on offers; it is waiting\n")
    again = sold("send", "r1", "offers", '{"item": "other"}', "--key", "m1")
    assert again.exit_code == codes.OK
    assert "has a message with the key m1 on offers already" in again.stderr
    work()
    assert sold("answer", "r1", "What price?", "a good one").exit_code == codes.OK
    work()
    assert json.loads(sold("show", "r1", "--json").stdout)["result"] == "2 lamp for a good one"
    late = sold("send", "r1", "offers", "1", "--key", "m2")
    assert (late.exit_code, late.stderr) == (
        codes.OK, "sent to run r1 on offers; it is not received any more, the run has succeeded\n"
    )  # fmt: skip


def test_questions_are_listed_by_run_and_role(sold: Cli) -> None:
    assert sold("start", "sells", "chair", "--id", "r2").exit_code == codes.OK
    work()
    assert {one["run"] for one in json.loads(sold("questions", "--json").stdout)} == {"r1", "r2"}
    assert [one["run"] for one in json.loads(sold("questions", "r2", "--json").stdout)] == ["r2"]
    assert json.loads(sold("questions", "--role", "clerk", "--json").stdout) == []
    rows = sold("questions", "--role", "owner").stdout.splitlines()
    assert rows[0].split() == ["run", "id", "role", "age", "until", "question"]
    assert len(rows) == 3
    assert rows[1].endswith("Sell chair? (bool)")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("answer", "r1", "Why?", "true"), codes.ERROR, "run r1 has no open question 'Why?'; open: answer:"),
        (("answer", "r1", "Sell", "maybe"), codes.ERROR, "no open question 'Sell'"),
        (("answer", "r1", "Sell lamp?", "maybe"), codes.USAGE, "it is not JSON"),
        (("answer", "r1", "Sell lamp?", '"maybe"'), codes.USAGE, "the question expects bool"),
        (("answer", "none", "Sell lamp?", "true"), codes.ERROR, "none"),
        (("questions", "none"), codes.ERROR, "none"),
        (("send", "none", "offers", "1", "--key", "k"), codes.ERROR, "none"),
        (("send", "r1", "offers", "{", "--key", "k"), codes.USAGE, "the message: it is not JSON"),
        (("send", "r1", "offers", "NaN", "--key", "k"), codes.USAGE, "NaN is no number of JSON"),
        (("send", "r1", "offers", "1"), codes.USAGE, "--key"),
        (("send", "r1", "offers", "1", "--key", ""), codes.USAGE, "--key"),
        (("send", "r1", "offers", "@nowhere.json", "--key", "k"), codes.USAGE, "nowhere.json cannot be read"),
    ],
)
def test_what_is_typed_wrong_is_told_and_stores_nothing(
    sold: Cli, words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    done = sold(*words)
    assert (done.exit_code, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr
    assert json.loads(sold("show", "r1", "--json").stdout)["unread"] == 0


def test_a_question_that_has_been_answered_is_not_open(sold: Cli) -> None:
    assert sold("answer", "r1", "Sell lamp?", "false", "--who", "ada").exit_code == codes.OK
    second = sold("answer", "r1", "Sell lamp?", "true", "--who", "bea")
    assert second.exit_code == codes.ERROR
    assert "open: none\nhint: `outlive questions r1` lists its open questions\n" in second.stderr
    work()
    assert status(sold) == "succeeded"
