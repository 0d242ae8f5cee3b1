"""`outlive export`, `outlive import`, `outlive audit verify --bundle` and `outlive retention` on both stores."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli
from tests.cli.survey_app import rows_of, served


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    found: str = request.getfixturevalue("postgres")
    return found


@pytest.fixture
async def stood(url: str) -> str:
    """A store with a run in each state that lasts, and nobody at them."""
    async with served(url):
        return url


async def said(cli: Cli, *words: str, code: int = 0, input: str | None = None) -> str:
    done = await asyncio.to_thread(cli, *words, input=input)
    assert done.exit_code == code, done.output
    return done.stdout + ("" if code == 0 else done.stderr)


async def test_a_run_is_exported_and_imported_elsewhere(cli: Cli, stood: str, tmp_path: Path) -> None:
    there = f"sqlite:///{tmp_path}/there.db"
    await said(cli, "db", "init", "--store", there)
    for run, says in (
        ("bills", "imported run bills into tenant default: 12 entries, succeeded"),
        ("doubts", "imported run doubts into tenant default: 5 entries, blocked"),
    ):
        done = await asyncio.to_thread(cli, "export", run, "--with-key", "--store", stood)
        assert done.exit_code == 0
        assert "warning: the file holds the digest key of tenant default" in done.stderr
        file = tmp_path / "bundle.jsonl"
        file.write_text(done.stdout, "utf-8")
        shown = await said(cli, "import", str(file), "--store", there)
        assert shown.partition(": ")[0] == says.partition(": ")[0]
        assert shown.endswith(says.rpartition(", ")[2] + "\n")
        assert "nothing to do" in await said(cli, "import", "-", "--store", there, input=done.stdout)
        assert "all fits" in (await asyncio.to_thread(cli, "audit", "verify", run, "--store", there)).stderr
    shown_json = json.loads(await said(cli, "show", "bills", "--json", "--store", there))
    assert shown_json == json.loads(await said(cli, "show", "bills", "--json", "--store", stood))
    assert json.loads(await said(cli, "ps", "--json", "--store", there))[0]["paused_at"] is not None


async def test_a_bundle_is_verified_against_the_store_that_wrote_it(cli: Cli, stood: str, tmp_path: Path) -> None:
    file, other = tmp_path / "bundle.jsonl", f"sqlite:///{tmp_path}/there.db"
    await said(cli, "db", "init", "--store", other)
    file.write_text(await said(cli, "export", "bills", "--store", stood), "utf-8")
    shown = json.loads(await said(cli, "audit", "verify", "--bundle", str(file), "--json", "--store", stood))
    assert (shown["fits"], shown["run"], shown["status"], shown["own_key"]) == (True, "bills", "succeeded", False)
    assert "carries none" in await said(
        cli, "audit", "verify", "--bundle", str(file), "--store", other, code=codes.ERROR
    )
    assert "carries none" in await said(cli, "import", str(file), "--store", other, code=codes.ERROR)
    lines = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join([*lines[:4], lines[4].replace("billed", "bilked"), *lines[6:]]), "utf-8")
    for words in (("import",), ("audit", "verify", "--bundle")):
        shown_error = await said(cli, *words, str(file), "--store", stood, code=codes.ERROR)
        assert f"error: line 6 of {file}: it is not what was written, or not where it was" in shown_error
    carrying = await said(cli, "export", "bills", "--with-key", "--store", stood)
    done = await asyncio.to_thread(cli, "audit", "verify", "--bundle", "-", "--store", other, input=carrying)
    assert done.exit_code == 0
    assert "only under the key that it carries itself" in done.stderr
    await said(cli, "audit", "verify", "bills", "--bundle", str(file), "--store", stood, code=codes.USAGE)
    await said(cli, "import", str(tmp_path / "none"), "--store", stood, code=codes.USAGE)
    await said(cli, "export", "none", "--store", stood, code=codes.ERROR)


async def test_what_would_go_is_shown_and_nothing_goes(cli: Cli, stood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = json.loads(await said(cli, "retention", "--json", "--store", stood))
    assert shown["statuses"]["succeeded"] == {"seconds": 2592000.0, "would_go": 0, "kept": {}}
    with rows_of(stood) as rows:
        rows("update run set created_at = 1, ended_at = 1 where id = 'bills'")
        rows(
            "insert into inbox (tenant, run_id, topic, sender_key, body, at)"
            " values ('default', 'bills', 't', 'k', '1', 1)"
        )
        shown = json.loads(await said(cli, "retention", "--json", "--runs", "--store", stood))
        assert shown["statuses"]["succeeded"]["kept"] == {"an unread message": 1}
        assert shown["runs"] == [{"tenant": "default", "run": "bills", "kept_for": "an unread message"}]
        rows("delete from inbox where run_id = 'bills'")
        assert await said(cli, "retention", "--runs", "--store", stood) == "bills of tenant default: goes\n"
        assert await said(cli, "retention", "--runs", "--store", stood, "--tenant", "other") == ""
        monkeypatch.setenv("OUTLIVE_RETENTION", "failed=3d")
        table = await said(cli, "retention", "--store", stood)
        assert [line.split()[:3] for line in table.splitlines()[1:]] == [
            ["cancelled", "for", "ever"], ["expired", "for", "ever"], ["failed", "3d", "0"],
            ["succeeded", "for", "ever"],
        ]  # fmt: skip
        assert len(rows("select 1 from run where id = 'bills'")) == 1


async def test_a_fork_that_arrives_without_its_kin_says_so(cli: Cli, stood: str, tmp_path: Path) -> None:
    there = f"sqlite:///{tmp_path}/there.db"
    await said(cli, "db", "init", "--store", there)
    for run, id in (("bills", "second"), ("second", "third")):
        if run == "second":
            await said(cli, "cancel", run, "--why", "it is only forked", "--store", stood)
        await said(cli, "fork", run, "--id", id, "--why", "another try", "--store", stood)
    warned: dict[str, str] = {}
    for run in ("third", "bills", "second"):
        bundle = await said(cli, "export", run, "--with-key", "--store", stood)
        done = await asyncio.to_thread(cli, "import", "-", "--store", there, input=bundle)
        assert done.exit_code == 0
        warned[run] = done.stderr
    assert "what run second and bills did, of which it is a fork, is not known here" in warned["third"]
    assert "not known here" not in warned["second"], "its parent was imported before"
    assert "it was forked: what its forks did is known here only" in warned["second"]
    assert "it was forked" not in warned["third"]
