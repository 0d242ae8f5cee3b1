"""The processes that replay: what they come to that never get to work, and what they leave behind."""

import asyncio

import pytest

from outlive.cli import codes
from outlive.gate import crew
from tests.replay.conftest import Cli
from tests.replay.releases import Releases

ELSEWHERE = "import os, sys, time\nif os.getppid() == {parent}:\n    {code}\napp = Outlive()"
DEPS = """from contextlib import asynccontextmanager


@asynccontextmanager
async def deps():
    raise OSError("no server")
    yield

app = Outlive(deps=deps)"""


def only_there(releases: Releases, code: str) -> str:
    """A release that does this as it is imported, in the processes that replay alone."""
    parent = __import__("os").getpid()
    return releases.release(("app = Outlive()", ELSEWHERE.format(parent=parent, code=code)))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("sys.exit('no database')", "SystemExit: no database (at release_"),
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("os._exit(7)", "has ended with 7"),
        ("print('last words', file=sys.stderr); os.abort()", "has ended with -6"),
        ("time.sleep(60)", "cannot be imported within 1 s"),
    ],
    ids=["exit", "raise", "gone", "abort", "hang"],
)
def test_an_application_that_no_process_can_import_is_told_of(
    cli: Cli, local: Releases, monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    asyncio.run(local.serve(local.release(), "r1", "r2"))
    if "sleep" in code:
        monkeypatch.setattr(crew, "_START_S", 1.0)
    done = cli("replay", only_there(local, code), "--json", "--store", local.store)
    assert (done.exit_code in (codes.USAGE, codes.ERROR), done.stdout) == (True, ""), done.output
    assert says in done.stderr


def test_what_the_application_depends_on_cannot_be_opened(cli: Cli, local: Releases) -> None:
    asyncio.run(local.serve(local.release(), "r1", "r2"))
    name = local.release(("app = Outlive()", DEPS))
    assert cli("replay", name, "--store", local.store).exit_code == codes.OK
    done = cli("replay", name, "--deps", "--store", local.store)
    assert done.exit_code in (codes.USAGE, codes.ERROR)
    assert "OSError: no server (at release_" in done.stderr


def test_a_module_of_the_standard_librarys_name_stays_the_applications(cli: Cli, local: Releases) -> None:
    asyncio.run(local.serve(local.release(), "r1"))
    (local.directory / "queue.py").write_text("raise RuntimeError('not that of Python')\n", "utf-8")
    done = cli("replay", local.names[-1] + ":app", "--store", local.store)
    assert done.exit_code == codes.OK, done.output
