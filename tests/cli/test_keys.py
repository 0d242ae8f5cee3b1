"""`outlive keys`, and what `show` says of an operation that shares an outcome."""

import json

from outlive.cli import codes
from tests.cli.conftest import Cli


def test_keys_are_listed_for_people_and_for_programs(cli: Cli) -> None:
    for run in ("first", "second"):
        assert cli("run", "pays_once", '"INV-7"', "--id", run).exit_code == codes.OK
    head, line = cli("keys").stdout.splitlines()
    assert head.split() == ["key", "status", "tool", "run", "operation", "waiting", "changed"]
    assert line.split()[:4] == ["pay/INV-7", "succeeded", "pay_once", "first"]
    [found] = json.loads(cli("keys", "INV-7", "--run", "first", "--status", "succeeded,free", "--json").stdout)
    assert list(found) == [
        "key", "digest", "status", "tool", "run", "operation", "outcome", "error", "waiting", "created_at",
        "updated_at",
    ]  # fmt: skip
    assert (found["key"], found["outcome"], found["waiting"], found["error"]) == ("pay/INV-7", "paid INV-7", [], None)
    assert json.loads(cli("keys", "nothing like it", "--json").stdout) == []
    assert "no business key matches" in cli("keys", "nothing like it").stderr
    assert json.loads(cli("keys", "--awaited", "--json").stdout) == []
    assert cli("keys", "--status", "asleep").exit_code == codes.USAGE


def test_show_names_the_run_that_has_done_it(cli: Cli) -> None:
    for run in ("first", "second"):
        assert cli("run", "pays_once", '"INV-7"', "--id", run).exit_code == codes.OK
    [operation] = json.loads(cli("show", "second", "--json").stdout)["operations"]
    assert (operation["how"], operation["shared_run"]) == ("shared", "first")
    shown = cli("show", "second").stdout
    assert f"done by:   operation {operation['shared_operation']} of run first" in shown
    assert "is not sent: business key pay/INV-7" in cli("log", "second").stdout
    assert cli("audit", "verify", "second").exit_code == codes.OK
