"""`approvals`, `approve` and `reject`, and what they refuse; what was approved is sent by whichever worker comes."""

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


@pytest.fixture
def waiting(cli: Cli) -> str:
    """The approval that the run `r1` waits for."""
    assert cli("start", "send", "4200", "--id", "r1", "--principal", "rita", "--purpose", "rent").exit_code == codes.OK
    work()
    (row,) = json.loads(cli("approvals", "--json").stdout)
    return str(row["approval"])


def work() -> None:
    """A worker that does what there is to do, and goes."""

    async def go() -> None:
        clock, settings = SystemClock(), Settings.load(None)
        store = await open_store(settings, clock)
        try:
            worker = worker_of(agents_app.app.registry, store, settings, clock, None)
            while await worker.claim():
                await worker.idle()
        finally:
            await store.close()

    asyncio.run(go())


def status(cli: Cli) -> str:
    (row,) = json.loads(cli("ps", "--all", "--json").stdout)
    return str(row["status"])


def test_what_waits_is_listed_with_what_will_be_sent(cli: Cli, waiting: str) -> None:
    listed = cli("approvals").stdout
    for word in (waiting, "finance", "transfer(cents=4200)", "r1", "rita"):
        assert word in listed
    told = cli("approvals", waiting[:8]).stdout
    for word in ("purpose   rent", "by run r1 of send", "finance: 0 of 1 agree", '{"cents":4200}'):
        assert word in told
    assert json.loads(cli("approvals", "--mine", "--who", "rita", "--json").stdout) == []
    assert len(json.loads(cli("approvals", "--mine", "--who", "ada", "--json").stdout)) == 1
    assert json.loads(cli("approvals", "--role", "board", "--json").stdout) == []


def test_what_was_approved_is_sent_once(cli: Cli, waiting: str, tmp_path: Path) -> None:
    done = cli("approve", waiting, "--who", "ada", "--role", "finance", "--why", "it is due")
    assert (done.exit_code, "is approved" in done.stderr) == (codes.OK, True)
    work()
    assert (tmp_path / "transferred").read_text() == "4200\n"
    assert status(cli) == "succeeded"
    again = cli("approve", waiting, "--who", "ben", "--role", "finance")
    assert again.exit_code == codes.ERROR
    assert "is approved and cannot be decided any more" in again.stderr
    assert "is not used" not in again.stderr
    assert cli("reject", waiting, "--who", "ben", "--role", "finance", "--why", "no", "--revoke").exit_code != codes.OK


def test_what_was_edited_is_what_is_sent(cli: Cli, waiting: str, tmp_path: Path) -> None:
    for edit in ("[1]", "{", '{"cents": "many"}', '{"dollars": 1}'):
        wrong = cli("approve", waiting, "--who", "ada", "--role", "finance", "--edit", edit)
        assert wrong.exit_code == codes.USAGE, wrong.stderr
    assert (
        cli("approve", waiting, "--who", "ada", "--role", "finance", "--edit", '{"cents": 4000}').exit_code == codes.OK
    )
    work()
    assert (tmp_path / "transferred").read_text() == "4000\n"


def test_a_rejection_says_why(cli: Cli, waiting: str, tmp_path: Path) -> None:
    assert cli("reject", waiting, "--who", "ada", "--role", "finance", "--why", " ").exit_code == codes.USAGE
    done = cli("reject", waiting, "--who", "ada", "--role", "finance", "--why", "we do not owe it")
    assert (done.exit_code, "is rejected" in done.stderr) == (codes.OK, True)
    work()
    assert status(cli) == "failed"
    assert "we do not owe it" in cli("show", "r1").stdout
    assert not (tmp_path / "transferred").exists()


def test_a_delegate_decides(cli: Cli, waiting: str) -> None:
    both = cli("approve", waiting, "--who", "ada", "--role", "finance", "--delegate", "ben", "--edit", "{}")
    assert both.exit_code == codes.USAGE
    done = cli("approve", waiting, "--who", "ada", "--role", "finance", "--delegate", "ben")
    assert "ben can decide" in done.stderr
    assert cli("approve", waiting, "--who", "ben").exit_code == codes.OK
    assert "ben for ada: approve" in cli("approvals", waiting).stdout


@pytest.mark.parametrize(
    ("who", "role", "says"), [("rita", "finance", "whoever asks"), ("ada", "sales", "it takes the role finance")]
)
def test_who_may_not_decide_is_told_why(cli: Cli, waiting: str, who: str, role: str, says: str) -> None:
    done = cli("approve", waiting, "--who", who, "--role", role)
    assert done.exit_code == codes.ERROR
    assert says in done.stderr
    unknown = cli("approve", "ap-none", "--who", "ada", "--role", "finance")
    assert "hint: `outlive approvals` lists what waits" in unknown.stderr
