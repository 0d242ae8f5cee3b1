"""`assert_replays` in a test of an application, and the recorded logs of this release under the gate."""

import asyncio
from pathlib import Path

import pytest

from outlive.model.errors import BadBundle, KeyDiffers, Refused
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.reading import read_only
from outlive.testing import assert_replays
from tests.replay.conftest import Cli
from tests.replay.releases import Releases


@pytest.fixture
def bundle(cli: Cli, local: Releases) -> str:
    asyncio.run(local.serve(local.release(), "r1"))
    Path("r1.jsonl").write_text(cli("export", "r1", "--store", local.store, "--with-key").stdout, "utf-8")
    return "r1.jsonl"


def test_a_run_goes_on(local: Releases, bundle: str) -> None:
    told = asyncio.run(assert_replays(bundle, local.app(local.names[0] + ":app")))
    assert (told.verdict, told.run, told.file) == ("same", "r1", "")
    longer = local.release(('run.receive("go", str)', 'run.receive("go", str)\n    await run.step(compute, 1)'))
    assert asyncio.run(assert_replays(bundle, local.app(longer))).verdict == "same"


def test_what_differs_is_said(local: Releases, bundle: str) -> None:
    other = local.app(local.release(("(compute, 21)", "(compute, 22)")))
    with pytest.raises(AssertionError, match=r"needs adoption at entry 2: the log has compute\(n=21\)") as raised:
        asyncio.run(assert_replays(bundle, other))
    assert "outlive adopt r1 --take-old --at 2" in str(raised.value)


def test_what_acts_is_not_done(local: Releases, bundle: str) -> None:
    other = local.app(local.release(("    # here\n", "    open('made.txt', 'w').close()\n")))
    with pytest.raises(AssertionError, match="acts outside a step: writes made.txt at release_"):
        asyncio.run(assert_replays(bundle, other))
    assert not Path("made.txt").exists()
    # The hook only looks while a log is replayed.
    Path("made.txt").write_text("x", "utf-8")


def test_deps_and_what_is_only_compatible(cli: Cli, local: Releases) -> None:
    first = local.release()
    asyncio.run(local.serve(first, "r1"))
    asyncio.run(local.serve(first, "r1", send="paid"))
    Path("r1.jsonl").write_text(cli("export", "r1", "--store", local.store, "--with-key").stdout, "utf-8")
    needs = local.app(local.release(("(compute, 21)", "(compute, run.deps)"), ('return f"{done}', 'return f"{done}!')))
    told = asyncio.run(assert_replays("r1.jsonl", needs, deps=21))
    assert (told.verdict, told.said()) == (
        "compatible",
        'compatible: ends otherwise than with "charged INV-7, paid": returns "charged INV-7!, paid" after entry 9',
    )
    with pytest.raises(AssertionError, match="compatible: ends otherwise"):
        asyncio.run(assert_replays("r1.jsonl", needs, deps=21, same=True))


def test_no_bundle_is_no_success(cli: Cli, local: Releases, bundle: str) -> None:
    app = local.app(local.names[0] + ":app")
    Path("keyless.jsonl").write_text(cli("export", "r1", "--store", local.store).stdout, "utf-8")
    with pytest.raises(KeyDiffers, match="keyless.jsonl"):
        asyncio.run(assert_replays("keyless.jsonl", app))
    Path("none.jsonl").write_text("{}\n", "utf-8")
    with pytest.raises(BadBundle, match="none.jsonl"):
        asyncio.run(assert_replays("none.jsonl", app))


async def test_a_store_that_is_only_read_refuses_the_rest_by_name(local: Releases) -> None:
    from outlive.app.compose import open_store
    from outlive.app.settings import Settings
    from outlive.model.clock import SystemClock

    store = await open_store(Settings.load({}, store=local.store), SystemClock())
    try:
        only = read_only(store)
        assert await only.run(DEFAULT_TENANT, RunId("r1")) is None
        with pytest.raises(Refused, match="claim of "):
            only.claim  # noqa: B018 - asking for it is what is refused
        with pytest.raises(Refused, match="it has none, and none is made here"):
            await only.key(DEFAULT_TENANT)
    finally:
        await store.close()
