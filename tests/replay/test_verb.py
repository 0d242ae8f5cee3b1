"""`outlive replay` from the outside: real processes against real stores, and what they come to."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import psycopg
import pytest

from outlive.cli import codes
from tests.replay.conftest import Cli
from tests.replay.releases import Releases

CALL = "await run.call(charge, invoice, cents)"


def replayed(cli: Cli, releases: Releases, name: str, *more: str) -> tuple[int, dict[str, object]]:
    done = cli("replay", name, "--json", "--jobs", "1", "--store", releases.store, *more)
    assert done.exit_code in (codes.OK, codes.FAILED, codes.BLOCKED), done.output
    return done.exit_code, json.loads(done.stdout)


def judged(found: dict[str, object]) -> dict[str, dict[str, object]]:
    listed = found["judged"]
    assert isinstance(listed, list)
    return {one["run"]: one for one in listed}


def test_a_release_is_judged_before_it_is_deployed(cli: Cli, releases: Releases) -> None:
    first = releases.release()
    rows = asyncio.run(releases.serve(first, "r1", "r2"))
    assert [row.status for row in rows] == ["waiting", "waiting"]
    asyncio.run(releases.serve(first, "r2", send="paid"))

    code, found = replayed(cli, releases, first)
    assert (code, found["verdict"], found["runs"]) == (codes.OK, "same", 2)
    assert found["versions"] == [
        {"agent": "dunning", "version": "1", "same": 2, "compatible": 0, "needs adoption": 0, "breaks": 0, "acts": 0}
    ]

    code, found = replayed(cli, releases, releases.release((CALL, "await run.call(charge, invoice, cents + 1)")))
    assert (code, found["verdict"]) == (codes.FAILED, "breaks")
    one = judged(found)["r1"]
    assert (one["expected"], one["found"]) == (
        'charge(invoice="INV-7", cents=42)', 'charge(invoice="INV-7", cents=43)',
    )  # fmt: skip
    assert one["entry"] == 3
    assert str(one["line"]).endswith(".py:19")

    code, found = replayed(cli, releases, releases.release(("(compute, 21)", "(compute, 22)")))
    assert (code, found["verdict"]) == (codes.BLOCKED, "needs adoption")
    assert "outlive adopt r1 --skip --at 2 --step compute --why" in str(judged(found)["r1"]["remedies"])
    assert "of one like it: outlive adopt RUN --skip --at 2 --step compute" in str(judged(found)["r2"]["remedies"])

    added = ("    # here\n", "    await run.step(compute, 3)\n")
    code, found = replayed(cli, releases, releases.release(added))
    assert code == codes.BLOCKED, "before a wait that is recorded something new is let in by a person alone"
    longer = ('    return f"{done}, {answer}"', "    await run.step(compute, 3)\n    return answer")
    code, found = replayed(cli, releases, releases.release(longer))
    assert (code, found["verdict"]) == (codes.OK, "compatible")
    assert {run: one["verdict"] for run, one in judged(found).items()} == {"r1": "same", "r2": "compatible"}
    assert judged(found)["r2"]["found"] == "goes on live with compute(n=3)"


def test_the_store_is_only_read(cli: Cli, releases: Releases) -> None:
    first = releases.release()
    asyncio.run(releases.serve(first, "r1"))
    releases.store = readable(releases.store)
    code, found = replayed(cli, releases, first)
    assert (code, found["verdict"]) == (codes.OK, "same")


def readable(url: str) -> str:
    """The same PostgreSQL as a standby is: every transaction may only read. SQLite has no such way in."""
    if url.startswith("sqlite"):
        return url
    return url.replace("options=-c", "options=-cdefault_transaction_read_only%3Don%20-c")


def test_agents_that_have_no_run_and_an_empty_store_fail(cli: Cli, local: Releases) -> None:
    first = local.release()
    asyncio.run(local.serve(first))
    done = cli("replay", first, "--store", local.store)
    assert done.exit_code == codes.ERROR
    assert done.stderr.splitlines() == [
        "warning: no run of dunning was replayed: nothing is known about it", "error: there is no run to replay",
    ]  # fmt: skip
    asyncio.run(local.serve(first, "r1"))
    done = cli("replay", first, "--store", local.store, "--agent", "dunning", "--agent", "nobody")
    assert (done.exit_code, "there is no run of nobody" in done.stderr) == (codes.ERROR, True)
    done = cli("replay", first, "--store", f"sqlite:///{local.directory}/none.db")
    assert done.exit_code == codes.ERROR
    assert "there is no" in done.stderr


def test_an_agent_that_was_removed_and_a_pinned_version_break(cli: Cli, local: Releases) -> None:
    pinned = ('version="1"', 'version="1", pin=True')
    asyncio.run(local.serve(local.release(pinned), "r1"))
    code, found = replayed(cli, local, local.release(("async def dunning", "async def reminding")))
    assert (code, judged(found)["r1"]["why"]) == (codes.FAILED, "the application has no agent dunning")
    code, found = replayed(cli, local, local.release(('version="1"', 'version="2", pin=True')))
    assert code == codes.FAILED
    assert "pinned to version 1" in str(judged(found)["r1"]["why"])


def test_junit_has_a_case_for_each_run(cli: Cli, local: Releases) -> None:
    asyncio.run(local.serve(local.release(), "r1"))
    other = local.release((CALL, 'await run.call(charge, "\\x00<&", cents)'))
    done = cli("replay", other, "--store", local.store, "--junit", "replay.xml")
    assert done.exit_code == codes.FAILED
    root = ElementTree.parse(local.directory / "replay.xml").getroot()
    assert [(one.get("tests"), one.get("failures")) for one in root] == [("1", "1")]
    failure = root.find("testsuite/testcase[@name='default/r1']/failure")
    assert failure is not None
    assert failure.get("type") == "breaks"
    assert cli("replay", other, "--store", local.store, "--junit", "none/replay.xml").exit_code == codes.USAGE


def test_samples(cli: Cli, local: Releases) -> None:
    first = local.release()
    asyncio.run(local.serve(first, "r1", "r2", "r3"))
    asyncio.run(local.serve(first, "r1", "r2", send="paid"))
    for more, runs in (((), 3), (("--sample", "1"), 2), (("--sample", "0"), 1), (("--since", "1h"), 3)):
        assert replayed(cli, local, first, *more)[1]["runs"] == runs
    for bad in (("--since", "soon"), ("--sample", "-1"), ("--limit", "x")):
        assert cli("replay", first, "--store", local.store, *bad).exit_code == codes.USAGE


def test_bundles_are_replayed_in_the_place_of_the_store(cli: Cli, local: Releases) -> None:
    first, other = local.release(), local.release((CALL, 'await run.call(charge, "INV-8", cents)'))
    asyncio.run(local.serve(first, "r1"))
    for name, key in (("open", ("--with-key",)), ("closed", ())):
        done = cli("export", "r1", "--store", local.store, *key)
        assert done.exit_code == codes.OK, done.output
        Path(f"{name}.jsonl").write_text(done.stdout, "utf-8")
    nowhere = ("--store", f"sqlite:///{local.directory}/none.db")
    done = cli("replay", first, "open.jsonl", *nowhere, "--json")
    assert done.exit_code == codes.OK, done.output
    one = json.loads(done.stdout)["judged"][0]
    assert (one["file"], one["tenant"], one["run"], one["verdict"]) == ("open.jsonl", "default", "r1", "same")
    assert cli("replay", "open.jsonl", "--app", other, *nowhere).exit_code == codes.FAILED
    assert cli("replay", first, "closed.jsonl", "--store", local.store).exit_code == codes.OK
    done = cli("replay", first, "closed.jsonl", *nowhere)
    assert (done.exit_code, "closed.jsonl: the bundle carries no key" in done.stderr) == (codes.ERROR, True)
    Path("cut.jsonl").write_bytes(Path("open.jsonl").read_bytes()[:-30])
    done = cli("replay", first, "cut.jsonl", *nowhere)
    assert (done.exit_code, "cut.jsonl" in done.stderr) == (codes.ERROR, True)
    done = cli("replay", first, "missing.jsonl", *nowhere)
    assert (done.exit_code, "missing.jsonl" in done.stderr) == (codes.USAGE, True)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("__import__('os')._exit(7)", "has ended with 7"),
        ("__import__('ctypes').string_at(0)", "has ended with -11"),
        ("while True: pass", "does not let go of the event loop"),
        ("await __import__('asyncio').Event().wait()", "has not come to rest within 1 s"),
    ],
    ids=["exit", "crash", "loop", "wait"],
)
def test_code_that_gets_away_is_told_of_and_the_others_are_judged(
    cli: Cli, local: Releases, code: str, says: str
) -> None:
    asyncio.run(local.serve(local.release(), "r1", "r2", "r3"))
    other = local.release(("    cents = await", f"    if run.id == 'r2':\n        {code}\n    cents = await"))
    exit_code, found = replayed(cli, local, other, "--limit", "1s")
    assert {run: one["verdict"] for run, one in judged(found).items()} == {"r1": "same", "r2": "breaks", "r3": "same"}
    assert (exit_code, says in str(judged(found)["r2"]["why"])) == (codes.FAILED, True)


def test_an_application_that_needs_the_network_to_be_imported_says_so(cli: Cli, local: Releases) -> None:
    asyncio.run(local.serve(local.release(), "r1"))
    name = local.release(
        ("app = Outlive()", "import os\nif os.getppid() != PARENT:\n    raise OSError('no network')\napp = Outlive()")
    )
    path = local.directory / f"{name.partition(':')[0]}.py"
    path.write_text(path.read_text("utf-8").replace("PARENT", str(__import__("os").getppid())), "utf-8")
    done = cli("replay", name, "--store", local.store)
    assert done.exit_code == codes.USAGE, done.output
    assert "no network" in done.stderr


def test_postgres_is_read_as_a_role_that_may_only_read(cli: Cli, postgres: str, tmp_path: Path) -> None:
    made = Releases(tmp_path, postgres)
    first = made.release()
    try:
        asyncio.run(made.serve(first, "r1"))
        schema = postgres.partition("&schema=")[2].partition("&")[0]
        with psycopg.connect(postgres.partition("&schema=")[0], autocommit=True) as connection:
            connection.execute("drop role if exists replay_reader")
            connection.execute("create role replay_reader login")
            connection.execute(f"grant usage on schema {schema} to replay_reader".encode())
            connection.execute(f"grant select on all tables in schema {schema} to replay_reader".encode())
        made.store = postgres.replace("postgres@", "replay_reader@").replace("user=postgres", "user=replay_reader")
        assert made.store != postgres
        code, found = replayed(cli, made, first)
        assert (code, found["verdict"]) == (codes.OK, "same")
    finally:
        made.forget()
        with psycopg.connect(postgres.partition("&schema=")[0], autocommit=True) as connection:
            connection.execute("drop owned by replay_reader")
            connection.execute("drop role replay_reader")


def test_a_log_that_cannot_be_read_is_told_of_and_the_others_are_judged(cli: Cli, local: Releases) -> None:
    asyncio.run(local.serve(local.release(), "r1", "r2"))
    with closing(sqlite3.connect(local.directory / "outlive.db")) as opened, opened:
        opened.execute("update entry set body = '{' where run_id = 'r1' and kind = 'step'")
        opened.execute("update entry set blob = x'00', payload = null where run_id = 'r2' and kind = 'step'")
        assert opened.total_changes == 2
    asyncio.run(local.serve(local.names[0] + ":app", "r3"))
    exit_code, found = replayed(cli, local, local.names[0] + ":app")
    assert exit_code == codes.FAILED
    told = judged(found)
    assert {run: one["verdict"] for run, one in told.items()} == {"r1": "breaks", "r2": "breaks", "r3": "same"}
    assert "entry 2" in str(told["r1"]["why"])
    assert "entry 2" in str(told["r2"]["why"])
