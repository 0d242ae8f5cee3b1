"""The maintainer of the example: hours of waiting, workers that die anywhere, and each fix in one commit."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from examples.maintainer.app import Desk, Report, app, maintain
from examples.maintainer.machine import Machine
from examples.maintainer.repository import Commit, NotEdited, NothingToCommit, Repository
from outlive.testing import Fault, lab

ROOT = Path(__file__).parents[2]
PROMPT = "Work through FIXES.md."
FIXES = ["F1", "F2", "F3", "F4", "F5"]


def fixes(repository: Repository) -> list[str]:
    """What is committed, the oldest first."""
    return [one.subject.partition(":")[0] for one in reversed(repository.commits()) if one.operation]


async def maintained(repository: Repository, *faults: Fault) -> tuple[Report, timedelta, list[str]]:
    """What came out, how long it took by the clock of the lab, and the log."""
    here = Desk(repository)
    async with lab(app, deps=here) as t:
        here.machine, begun = Machine(t.clock), t.clock.now()
        run = await t.start(maintain, PROMPT)
        for fault in faults:
            t.crash(fault)
        return await run.result(), timedelta(milliseconds=t.clock.now() - begun), await t.log(run)


async def test_it_works_for_hours_and_goes_on_from_its_notes(tmp_path: Path) -> None:
    repository = Repository.made(tmp_path / "repository")
    report, hours, log = await maintained(repository)
    assert report == Report(fixed=FIXES, left=[])
    assert fixes(repository) == FIXES
    assert repository.tested("")[0]
    assert timedelta(hours=4) <= hours < timedelta(hours=5)
    assert [one for one in log if "intent" in one and "maintainer.compact" in one], "the conversation was never long"
    assert len([one for one in log if "emit:note(" in one]) == len(FIXES) + 1
    assert len([one for one in log if 'run_tests(name="tests.Temperature")' in one and " step " in one]) == 2


class Deadly(Repository):
    """Whoever commits to it dies before the commit is recorded."""

    dies: Callable[[], None]

    def commit(self, message: str, operation: str) -> Commit:
        made = super().commit(message, operation)
        self.dies()
        return made


@pytest.mark.deaths
async def test_every_commit_is_lost_with_its_worker_and_found(tmp_path: Path) -> None:
    repository = Deadly.made(tmp_path / "repository")
    async with lab(app, deps=Desk(repository)) as t:
        repository.dies = lambda: t.crash(Fault("die", 1, "append"))
        run = await t.start(maintain, PROMPT)
        report = await run.result()
        log = await t.log(run)
    assert (report.fixed, fixes(repository)) == (FIXES, FIXES)
    assert len([one for one in log if " lookup " in one and "happened" in one]) == len(FIXES)


@pytest.mark.deaths
async def test_wherever_a_worker_dies_each_fix_is_committed_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    for at in range(3, 110, 36):
        for kind in ("die", "after"):
            repository = Repository.made(tmp_path / f"{kind}-{at}")
            report, _, _ = await maintained(repository, Fault(kind, at, "append"))
            assert (report.fixed, fixes(repository)) == (FIXES, FIXES), (kind, at)


@pytest.mark.deaths
def test_the_demo() -> None:
    command = [sys.executable, "-m", "examples.maintainer.demo"]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert played.stdout.count("a worker was killed in") == 2
    assert "each fix is committed once, and all tests pass" in played.stdout


def test_an_edit_that_was_made_is_not_made_again(tmp_path: Path) -> None:
    repository = Repository.made(tmp_path / "repository")
    for old, new in (("range(first", "range(1 + first"), ("last))", "last)) + []")):
        for _ in range(2):
            repository.edit("spans.py", old, new)
        assert repository.read("spans.py").count(new) == 1
    with pytest.raises(NotEdited, match="0 times"):
        repository.edit("spans.py", "not there", "something")
    with pytest.raises(NotEdited, match="2 times"):
        repository.edit("spans.py", "numbers", "figures")
    with pytest.raises(FileNotFoundError):
        repository.edit("../elsewhere.py", "a", "b")


def test_a_commit_is_found_by_its_operation(tmp_path: Path) -> None:
    repository = Repository.made(tmp_path / "repository")
    with pytest.raises(NothingToCommit):
        repository.stage()
    repository.edit("spans.py", "last))", "last + 1))")
    repository.stage()
    made = repository.commit("F5: Count to the last", "key-1")
    assert made == Commit(made.id, "F5: Count to the last", "key-1")
    assert repository.of("key-1") == made
    assert repository.of("key") is None
