"""Who is told, as people see it: what there is to tell, whether routes work, and what doctor says of it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli
from tests.cli.survey_app import rows_of, served
from tests.cli.test_doctor import examined, troubles

OK = json.dumps({"good": {"command": [sys.executable, "-c", "import sys; print(len(sys.stdin.read()) > 50)"]}})
BAD = json.dumps({"bad": {"url": "http://127.0.0.1:9/secret-path", "kinds": ["blocked"]}})


async def test_what_nobody_was_told_is_listed_and_found(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with served(url):
        done = await asyncio.to_thread(cli, "notifications", "--undelivered", "--json", "--store", url)
        found = json.loads(done.stdout)
        assert sorted(one["kind"] for one in found) == ["blocked", "question", "unknown operation"]
        assert [one["deliveries"] for one in found] == [[], [], []]
        shown = await asyncio.to_thread(cli, "notifications", "--store", url, "--limit", "1")
        assert "nobody so far" in shown.stdout
        assert "there are more than 1" in shown.stderr
        with rows_of(url) as rows:
            rows("update notification set created_at = created_at - 61000")
        code, told = await examined(cli, url)
        assert (code, told["told"], troubles(told)) == (codes.ERROR, False, [("nobody to notify", url)])
        with rows_of(url) as rows:
            rows("update notification set unrouted = null")
            rows(
                "insert into delivery (notification, route, tenant, run_id, next_at, failing_since, error)"
                " select position, 'ops', tenant, run_id, 0, created_at, '503 Down' from notification"
            )
        _, told = await examined(cli, url)
        assert troubles(told) == [("failing route", "ops")]
        assert "503 Down" in told["findings"][0]["why"]
        assert "ops: 503 Down" in (await asyncio.to_thread(cli, "notifications", "--store", url)).stdout


@pytest.mark.parametrize(
    ("notify", "code", "says"),
    [
        (OK, codes.OK, f"good: command {sys.executable}: ok: exit code 0 True"),
        (BAD, codes.ERROR, "bad: http://127.0.0.1:9: FAILED: ConnectionRefusedError"),
        ("", codes.ERROR, ""),
    ],
)
def test_a_test_tells_what_each_route_answers(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, notify: str, code: int, says: str
) -> None:
    monkeypatch.setenv("OUTLIVE_NOTIFY", notify)
    done = cli("notify", "test")
    assert done.exit_code == code, done.output
    assert done.stdout.startswith(says)
    assert "secret-path" not in done.output
    shown = cli("notify", "test", "--json")
    assert [one["delivered"] for one in json.loads(shown.stdout)] == ([code == codes.OK] if notify else [])


@pytest.mark.parametrize(
    ("notify", "says"),
    [
        ("{", "it is not JSON"),
        ("[]", "say {"),
        ('{"a b": {"url": "http://x"}}', "a name has"),
        ('{"a": {}}', "say url or command"),
        ('{"a": {"url": "ftp://x"}}', "say http://host/path"),
        ('{"a": {"url": "http://me@x/"}}', "has no user"),
        ('{"a": {"url": 1}}', "url is a text"),
        ('{"a": {"uri": "x"}}', "there is no 'uri'"),
        ('{"a": {"url": "http://x", "kinds": ["blockt"]}}', "there is no kind 'blockt'"),
        ('{"a": {"command": [""]}}', "lists of texts"),
        ('{"a": {"command": ["x"], "secret": "s"}}', "a secret signs"),
    ],
)
def test_a_route_that_cannot_be_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch, notify: str, says: str) -> None:
    monkeypatch.setenv("OUTLIVE_NOTIFY", notify)
    done = cli("config")
    assert done.exit_code == 2
    assert says in done.stderr


UNSIGNED = json.dumps({"ops": {"url": "http://127.0.0.1:9/hook", "secret": "notify/ops"}})


def test_without_the_secret_of_a_route_no_worker_starts_and_doctor_says_so(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("db", "init").exit_code == codes.OK
    monkeypatch.setenv("OUTLIVE_NOTIFY", UNSIGNED)
    refused = cli("worker")
    assert refused.exit_code == codes.USAGE, refused.output
    for word in ("notify = 'ops'", "OUTLIVE_NOTIFY", "no secret 'notify/ops'", "OUTLIVE_SECRET_NOTIFY_OPS"):
        assert word in refused.stderr
    doctor = cli("doctor")
    assert doctor.exit_code == codes.ERROR
    assert "failing route: ops: nothing can be signed in this environment" in doctor.stdout
    monkeypatch.setenv("OUTLIVE_SECRET_NOTIFY_OPS", "hush")
    assert cli("doctor").exit_code == codes.OK
