"""`complete`: what is typed wrong is one line, names what and where, and stores nothing."""

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def _store(cli: Cli) -> None:
    assert cli("db", "init").exit_code == codes.OK


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), codes.USAGE, "say either --happened JSON or --did-not-happen"),
        (("--happened", "1", "--did-not-happen"), codes.USAGE, "say either --happened JSON or --did-not-happen"),
        (("--happened", "{"), codes.USAGE, "outcome"),
        (("--did-not-happen",), codes.ERROR, "there is no operation 'op-nope'"),
    ],
)
def test_what_cannot_be_told_is_one_line(cli: Cli, words: tuple[str, ...], code: int, says: str) -> None:
    done = cli("complete", "op-nope", "--key", "k", "--why", "seen", *words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert says in done.stderr


def test_the_hint_for_an_operation_of_no_run_is_a_command(cli: Cli) -> None:
    done = cli("complete", "op-nope", "--key", "k", "--why", "seen", "--did-not-happen")
    assert "hint: `outlive show RUN` lists its operations" in done.stderr
