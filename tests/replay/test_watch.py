"""What code does outside of steps and tools is found where it stands, and is not done."""

import asyncio
import ctypes
import json
import os
import socket
from pathlib import Path
from typing import cast

import pytest

from outlive.cli import codes
from outlive.gate.alone import leave_network
from tests.replay.conftest import Cli
from tests.replay.releases import TEXT, Releases

HERE = "    # here\n"
LINE = TEXT.splitlines().index("    # here") + 1


def judged(cli: Cli, releases: Releases, code: str, *more: str) -> dict[str, object]:
    """What is said of a run whose code now does this before it waits, in a line of its own."""
    asyncio.run(releases.serve(releases.release(), "r1"))
    name = releases.release((HERE, "".join(f"    {line}\n" for line in code.splitlines())))
    done = cli("replay", name, "--json", "--jobs", "1", "--store", releases.store, *more)
    assert done.exit_code in (codes.OK, codes.FAILED), done.output
    found: dict[str, object] = json.loads(done.stdout)
    (one,) = cast("list[dict[str, object]]", found["judged"])
    return {**one, "alone": found["alone"]}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("open('made.txt', 'w').write('x')", "writes made.txt"),
        ("__import__('pathlib').Path('made.txt').write_text('x')", "writes made.txt"),
        ("__import__('pathlib').Path('made').mkdir()", "makes made"),
        ("__import__('os').remove('kept.txt')", "removes kept.txt"),
        ("__import__('shutil').copyfile('kept.txt', 'made.txt')", "copies kept.txt"),
        ("__import__('subprocess').run(['touch', 'made.txt'])", "starts the process touch"),
        ("__import__('os').system('touch made.txt')", "runs touch made.txt"),
        ("await __import__('asyncio').create_subprocess_exec('touch', 'made.txt')", "starts the process touch"),
        ("await __import__('asyncio').to_thread(open, 'made.txt', 'w')", "writes made.txt"),
        ("__import__('socket').create_connection(('127.0.0.1', PORT))", "looks 127.0.0.1 up"),
        ("__import__('socket').socket().connect(('127.0.0.1', PORT))", "connects to ('127.0.0.1', PORT)"),
        ("await __import__('asyncio').open_connection('127.0.0.1', PORT)", "connects to ('127.0.0.1', PORT)"),
        ("__import__('urllib.request').request.urlopen('http://127.0.0.1:PORT')", "looks 127.0.0.1 up"),
        ("__import__('sqlite3').connect('made.txt')", "opens the database made.txt"),
    ],
)
def test_python_is_asked(cli: Cli, local: Releases, code: str, found: str) -> None:
    Path("kept.txt").write_text("kept", "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        port = str(server.getsockname()[1])
        # Whatever it is, it is not got past by code that swallows errors.
        one = judged(cli, local, f"try:\n    {code.replace('PORT', port)}\nexcept Exception:\n    pass")
        with pytest.raises(TimeoutError):
            server.accept()
    assert (one["verdict"], one["found"]) == ("acts", found.replace("PORT", port))
    assert str(one["line"]).endswith(f".py:{LINE + 1}")
    assert not any(Path(name).exists() for name in ("made.txt", "made"))
    assert Path("kept.txt").exists()


def test_what_a_c_library_sends_goes_nowhere_and_is_found(cli: Cli, local: Releases) -> None:
    if not alone():
        pytest.skip("this system gives a process no network of its own")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        port = server.getsockname()[1]
        connect = f"psycopg.connect('host=127.0.0.1 port={port} connect_timeout=2')"
        one = judged(cli, local, f"import psycopg\ntry:\n    {connect}\nexcept psycopg.Error:\n    pass")
        with pytest.raises(TimeoutError):
            server.accept()
    assert (one["verdict"], one["alone"]) == ("acts", True)
    assert one["found"] == "reaches for the network, in psycopg that does not go by Python"
    assert str(one["line"]).endswith(f".py:{LINE + 2}")


def test_without_a_network_of_its_own_the_gate_warns(cli: Cli, local: Releases) -> None:
    one = judged(cli, local, "pass", "--network")
    assert (one["verdict"], one["alone"]) == ("same", False)
    done = cli("replay", local.names[-1] + ":app", "--network", "--store", local.store)
    assert (done.exit_code, "C libraries" in done.stderr) == (codes.OK, True)


def test_files_that_are_read_are_noted(cli: Cli, local: Releases) -> None:
    Path("kept.txt").write_text("kept", "utf-8")
    one = judged(cli, local, "import colorsys\nopen('kept.txt').close()")
    (note,) = cast("list[str]", one["notes"])
    assert one["verdict"] == "same"
    assert note.startswith("reads kept.txt at release_")
    assert f".py:{LINE + 1}," in note


def test_deps_are_opened_when_that_is_asked_for(cli: Cli, local: Releases) -> None:
    opened = """
from contextlib import asynccontextmanager
from types import SimpleNamespace


@asynccontextmanager
async def deps():
    yield SimpleNamespace(limit=21)

app = Outlive(deps=deps)
"""
    asyncio.run(local.serve(local.release(), "r1"))
    name = local.release(("\napp = Outlive()\n", opened), ("(compute, 21)", "(compute, run.deps.limit)"))
    done = cli("replay", name, "--store", local.store)
    assert (done.exit_code, "uses run.deps.limit, which is not opened here" in done.stdout) == (codes.FAILED, True)
    assert cli("replay", name, "--store", local.store, "--deps").exit_code == codes.OK


def test_an_application_without_deps_has_none(cli: Cli, local: Releases) -> None:
    assert judged(cli, local, "assert run.deps is None")["verdict"] == "same"


def alone() -> bool:
    """Whether a process may have a network of its own here; asked of one, for it cannot be given back."""
    child = os.fork()
    if child == 0:
        os._exit(0 if leave_network() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_user_without_privileges_keeps_its_id() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        # As a program that was started by that user: who has changed its id may not write to its own /proc.
        ctypes.CDLL(None).prctl(4, 1)
        os.write(write, f"{leave_network()} {os.getuid()} {os.getgid()}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read, encoding="ascii") as told:
        said = told.read().split()
    if said[0] == "False":
        pytest.skip("no user namespaces here")
    assert said == ["True", "65534", "65534"]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (
            "__import__('multiprocessing').get_context('spawn').Process(target=__import__('os').mkdir, "
            "args=('made',)).start()",
            "starts the process",
        ),
        ("__import__('os').mkfifo('made')", "makes made"),
        ("__import__('os').mknod('made')", "makes made"),
        ("__import__('os').setxattr('kept.txt', 'user.made', b'x')", "changes kept.txt"),
        ("__import__('os').killpg(2**22 + 1, 0)", "sends a signal to the group 4194305"),
    ],
    ids=["spawn", "mkfifo", "mknod", "setxattr", "killpg"],
)
def test_what_python_does_not_say_of_itself_is_asked_for(cli: Cli, local: Releases, code: str, found: str) -> None:
    Path("kept.txt").write_text("kept", "utf-8")
    one = judged(cli, local, f"try:\n    {code}\nexcept Exception:\n    pass")
    assert (one["verdict"], str(one["found"])[: len(found)]) == ("acts", found)
    assert str(one["line"]).endswith(f".py:{LINE + 1}")
    assert not Path("made").exists()


LATE = """import {module}
def late():
    if {when}: open('made.txt', 'w').close()
async def soon():
    await __import__('asyncio').sleep(0.2)
    late()
{start}"""


@pytest.mark.parametrize(
    ("when", "start", "left"),
    [
        ("not __import__('time').sleep(0.5)", "threading.Thread(target=late, name='T').start()", "the thread T"),
        ("True", "run.kept = __import__('asyncio').get_running_loop().create_task(soon())", "a task"),
        ("True", "__import__('atexit').register(late)", ""),
    ],
    ids=["thread", "task", "atexit"],
)
def test_what_outlives_a_run_does_nothing_and_is_not_laid_on_the_next(
    cli: Cli, local: Releases, when: str, start: str, left: str
) -> None:
    code = LATE.format(module="threading", when=when, start=start.replace("run.kept", "T"))
    asyncio.run(local.serve(local.release(), "r1", "r2", "r3"))
    wait = "__import__('time').sleep(0.8) if run.id == 'r2' else None"
    name = local.release((HERE, "".join(f"    {line}\n" for line in [*code.splitlines(), wait])))
    text = (local.directory / f"{name.partition(':')[0]}.py").read_text("utf-8")
    only = text.replace("    threading.Thread(", "    if run.id == 'r1': threading.Thread(")
    (local.directory / f"{name.partition(':')[0]}.py").write_text(only, "utf-8")
    done = cli("replay", name, "--json", "--jobs", "1", "--store", local.store)
    told = {one["run"]: one for one in json.loads(done.stdout)["judged"]}
    assert {run: one["verdict"] for run, one in told.items()} == {"r1": "same", "r2": "same", "r3": "same"}
    assert not Path("made.txt").exists()
    if left:
        assert told["r1"]["notes"] == [f"leaves {left} behind: what that does later is not seen here"]


def test_a_file_is_not_trusted_for_its_name(cli: Cli, local: Releases) -> None:
    (local.directory / "shop").mkdir()
    for name, text in (("__init__", ""), ("inspect", "def act():\n    open('made.txt', 'w').close()\n")):
        (local.directory / "shop" / f"{name}.py").write_text(text, "utf-8")
    one = judged(cli, local, "from shop.inspect import act\nact()")
    assert (one["verdict"], one["found"], one["line"]) == ("acts", "writes made.txt", "inspect.py:2")
    assert not Path("made.txt").exists()
