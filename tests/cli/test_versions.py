"""`outlive adopt` and `outlive versions`: a release that dropped a step, from the divergence to where the run stood."""

import json

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli


@pytest.fixture
def diverged(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A command whose store has the run `s1`, which the first release has begun and the second cannot go on with."""
    monkeypatch.setenv("OUTLIVE_APP", "tests.cli.release_app:app")
    monkeypatch.setenv("OUTLIVE_BUILD", "first")
    assert cli("run", "ship", "tea", "--id", "s1").exit_code == codes.BLOCKED
    monkeypatch.setenv("OUTLIVE_BUILD", "second")
    monkeypatch.setenv("RELEASE", "2")
    assert cli("retry", "s1", "--why", "so").exit_code == codes.OK
    assert cli("run", "ship", "--id", "s1").exit_code == codes.BLOCKED
    return cli


def test_a_difference_is_shown_with_its_ways_out_and_adopted(diverged: Cli) -> None:
    shown = diverged("show", "s1").output
    assert "diverged:" in shown
    assert 'build second: the log has greet(item="tea")' in shown
    assert "adopt s1 --skip --why 'why that is right'" in shown
    assert '# the code need not ask for greet(item="tea") any more' in shown
    assert [one["how"] for one in json.loads(diverged("show", "s1", "--json").stdout)["adoptable"]] == ["skip"]
    [version] = json.loads(diverged("versions", "--json").stdout)
    assert version["diverged"] == {"second": 1}

    done = diverged("adopt", "s1", "--skip", "--who", "Ada", "--why", "nobody reads it")
    assert (done.exit_code, done.stdout) == (codes.OK, "s1\n")
    assert "skip at entry" in done.stderr
    assert "says Ada: nobody reads it" in diverged("log", "s1").output
    assert json.loads(diverged("versions", "--json").stdout)[0]["diverged"] == {}

    # It goes on to where it stood before: an operation that may have happened.
    assert diverged("run", "ship", "--id", "s1").exit_code == codes.BLOCKED
    assert json.loads(diverged("show", "s1", "--json").stdout)["run"]["reason"] == "operation in doubt"
    assert diverged("audit", "verify").exit_code == codes.OK


def test_what_cannot_be_adopted_is_refused_with_the_reason(diverged: Cli) -> None:
    for options, code, says in (
        (("--insert", "--why", "x"), codes.ERROR, "which is no step; only steps can be adopted"),
        (("--skip", "--at", "0", "--why", "x"), codes.ERROR, "no build has diverged at entry 0"),
        (("--why", "x"), codes.USAGE, "say one of --skip, --insert, --take-old and --run-again"),
        (("--skip", "--insert", "--why", "x"), codes.USAGE, "say one of"),
        (("--skip", "--why", " "), codes.USAGE, "--why: say why"),
        (("--skip",), codes.USAGE, "--why"),
    ):
        done = diverged("adopt", "s1", *options)
        assert done.exit_code == code, done.output
        assert says in " ".join(done.output.replace("│", " ").split())
    assert json.loads(diverged("show", "s1", "--json").stdout)["run"]["reason"] == "diverged"
    assert diverged("adopt", "nobody", "--skip", "--why", "x").exit_code == codes.ERROR


def test_what_a_coming_release_drops_is_adopted_before_it_comes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_APP", "tests.cli.release_app:app")
    monkeypatch.setenv("OUTLIVE_BUILD", "first")
    assert cli("run", "ship", "tea", "--id", "s1").exit_code == codes.BLOCKED
    log = [json.loads(line) for line in cli("log", "s1", "--json").stdout.splitlines()]
    [_, at] = [str(one["seq"]) for one in log if one["kind"] == "step"]
    for options, code, says in (
        (("--skip", "--at", at, "--why", "x"), codes.ERROR, "only a run that has diverged can be adopted"),
        (("--skip", "--at", at, "--step", "other", "--why", "x"), codes.ERROR, "and not other"),
        (("--skip", "--step", "greet", "--why", "x"), codes.USAGE, "say --at ENTRY"),
        (("--skip", "--at", at, "--step", "greet", "--digest", "0", "--why", "x"), codes.USAGE, "not with --skip"),
        (("--insert", "--at", at, "--step", "greet", "--why", "x"), codes.ERROR, "say the digest of the arguments"),
    ):
        done = cli("adopt", "s1", *options)
        assert done.exit_code == code, done.output
        assert says in " ".join(done.output.replace("│", " ").split())
    done = cli("adopt", "s1", "--skip", "--at", at, "--step", "greet", "--why", "nobody reads it")
    assert (done.exit_code, done.stdout) == (codes.OK, "s1\n")
    assert json.loads(cli("show", "s1", "--json").stdout)["run"]["reason"] == "operation in doubt"

    monkeypatch.setenv("OUTLIVE_BUILD", "second")
    monkeypatch.setenv("RELEASE", "2")
    assert cli("retry", "s1", "--why", "so").exit_code == codes.OK
    assert cli("run", "ship", "--id", "s1").exit_code == codes.BLOCKED
    assert json.loads(cli("show", "s1", "--json").stdout)["run"]["reason"] == "operation in doubt"
    assert cli("audit", "verify").exit_code == codes.OK


def test_versions_say_what_has_no_worker(diverged: Cli) -> None:
    assert diverged("start", "ship", "coffee", "--id", "s2").exit_code == codes.OK
    done = diverged("versions")
    assert done.exit_code == codes.OK
    table = [line.split() for line in done.stdout.splitlines()]
    assert table[0] == ["agent", "version", "ready", "running", "waiting", "blocked", "workers", "unserved", "diverged"]
    assert all(line[6] == "none" for line in table[1:])
    assert "have no live worker that could drive them" in done.stderr
    shown = diverged("show", "s2").output
    assert "to which it is pinned" in shown
    assert "none has been seen lately" in shown


def test_an_empty_store_has_no_versions(diverged: Cli) -> None:
    found = diverged("versions", "--tenant", "nobody")
    assert (found.exit_code, found.stdout) == (codes.OK, "")
