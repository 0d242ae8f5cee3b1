"""What the gate tells people: commands that do what they say, to the run that is meant, and files that can be read."""

import asyncio
import logging
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest

from outlive import Agent
from outlive.app.compose import open_store, worker_of
from outlive.app.settings import Settings
from outlive.cli import codes
from outlive.gate.judge import _listening
from outlive.model.clock import SystemClock
from outlive.testing import assert_replays
from tests.replay.conftest import Cli
from tests.replay.releases import Releases

OTHER = ("(compute, 21)", "(compute, 22)")


async def _of_a_tenant(local: Releases, tenant: str) -> None:
    """A run that waits, in that tenant."""
    app, store = local.app(local.release()), await open_store(Settings.load({}, store=local.store), SystemClock())
    try:
        app.use(store)
        (spec,) = app.registry.agents.values()
        await app.start(cast("Agent[object, object]", spec), "INV-7", id="r1", tenant=tenant)
        worker = worker_of(app.registry, store, Settings(), SystemClock(), None, wake_in_place=False)
        while await worker.claim():
            await worker.idle()
    finally:
        await store.close()


def test_a_command_names_the_tenant_of_the_run(cli: Cli, local: Releases) -> None:
    asyncio.run(local.serve(local.release(), "r1"))
    asyncio.run(_of_a_tenant(local, "acme corp"))
    other = local.release(OTHER)
    told = cli("replay", other, "--store", local.store).stdout
    assert "\nacme corp/r1 (dunning version 1, waiting): needs adoption" in f"\n{told}"
    assert "\nr1 (dunning version 1, waiting): needs adoption" in f"\n{told}"
    assert "outlive adopt r1 --tenant 'acme corp' --skip --at 2" in told
    assert "outlive adopt r1 --skip --at 2" in told

    export = cli("export", "r1", "--tenant", "acme corp", "--store", local.store, "--with-key")
    Path("r1.jsonl").write_text(export.stdout, "utf-8")
    assert "outlive adopt r1 --tenant 'acme corp' --skip" in cli("replay", other, "r1.jsonl").stdout
    same = asyncio.run(assert_replays("r1.jsonl", local.app(local.names[0] + ":app")))
    assert same.tenant == "acme corp"
    with pytest.raises(AssertionError, match="outlive adopt r1 --tenant 'acme corp' --skip"):
        asyncio.run(assert_replays("r1.jsonl", local.app(other)))


def test_code_that_ends_before_an_operation_breaks_whatever_can_be_skipped_before(cli: Cli, local: Releases) -> None:
    asyncio.run(local.serve(local.release(), "r1"))
    at_once = local.release(("    cents = await", "    return invoice\n    cents = await"))
    done = cli("replay", at_once, "--store", local.store)
    assert (done.exit_code, "outlive adopt" in done.stdout) == (codes.FAILED, False)
    assert "breaks at entry 2: the log has compute(n=21), the code asks for the end of the agent" in done.stdout


def test_code_that_ends_before_steps_alone_can_be_adopted(cli: Cli, local: Releases) -> None:
    two = "a = await run.step(compute, 1)\n    b = await run.step(compute, 2)"
    steps = f"    {two}\n    return str(a + b)\n    cents = await"
    asyncio.run(local.serve(local.release(("    cents = await", steps)), "r1"))
    shorter = local.release(("    cents = await", "    return '6'\n    cents = await"))
    done = cli("replay", shorter, "--store", local.store)
    assert (done.exit_code, "outlive adopt RUN --skip --at 2" in done.stdout) == (codes.BLOCKED, True)


def test_junit_of_any_text_is_xml(cli: Cli, local: Releases) -> None:
    asyncio.run(local.serve(local.release(), "r1"))
    odd = local.release(("(compute, 21)", r"(compute, '\x01\ufffe\uffff')"), ("n: int)", "n: int | str)"))
    assert cli("replay", odd, "--store", local.store, "--junit", "j.xml").exit_code == codes.BLOCKED
    (case,) = ElementTree.parse("j.xml").iter("testcase")
    assert case.find("failure") is not None


def test_notes_are_heard_whatever_an_application_does_about_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("outlive.harness")
    monkeypatch.setattr(logger, "disabled", True)  # as logging.config.dictConfig does with what it does not name
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with _listening() as heard:
            logger.warning("the prompt of %s has changed", "a")
        assert heard == ["the prompt of a has changed"]
        assert (logger.disabled, logger.level) == (True, logging.CRITICAL)
    finally:
        logger.setLevel(level)
