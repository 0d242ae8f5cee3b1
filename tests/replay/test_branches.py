"""Branches of which one waits: what another one decides by its end is something new, as a live worker shows."""

import asyncio

import pytest

from outlive.cli import codes
from tests.replay.conftest import Cli
from tests.replay.releases import TEXT, Releases

BODY = """    async def waits() -> str:
        return await run.receive("go", str)

    async def ends() -> str:
        await run.step(compute, 1)
        return "done"

    return str(await run.JOIN(waits(), ends()))
"""
RAISES = ('        return "done"', '        raise ValueError("odd")')


def text(join: str) -> str:
    """The release whose agent does nothing else."""
    return TEXT.partition("    cents = await")[0] + BODY.replace("JOIN", join)


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_branch_that_fails_now_decides_its_gather(cli: Cli, local: Releases, swallowed: bool) -> None:
    (row,) = asyncio.run(local.serve(local.release(text=text("gather")), "r1"))
    assert row.status == "waiting"
    changes = [RAISES]
    if swallowed:
        join = "    return str(await run.gather(waits(), ends()))"
        caught = f"    try:\n    {join}\n    except ValueError:\n        return await run.call(charge, invoice, 7)"
        changes.append((join, caught))
    other = local.release(*changes, text=text("gather"))
    done = cli("replay", other, "--store", local.store, "--all")
    assert done.exit_code == codes.OK
    assert "r1 (dunning version 1, waiting): compatible: goes on live with gather(" in done.stdout

    (row,) = asyncio.run(local.serve(other, "r1", send="paid"))
    assert row.status == ("succeeded" if swallowed else "failed")


def test_branches_that_stand_where_they_stood_are_the_same(cli: Cli, local: Releases) -> None:
    name = local.release(text=text("gather"))
    asyncio.run(local.serve(name, "r1"))
    assert ": same" in cli("replay", name, "--store", local.store, "--all").stdout
