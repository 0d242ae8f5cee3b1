"""How a business key is declared: checked when the tool is registered, and where it is no text."""

from __future__ import annotations

from typing import Any

import pytest

from outlive import Operation, Outlive, Run
from outlive.errors import Refused
from tests.engine import keyed
from tests.engine.keyed import begin
from tests.engine.rig import Rig


@pytest.fixture(autouse=True)
def fresh() -> None:
    keyed.reset()


async def act(op: Operation[None], invoice: str, cents: int) -> str:
    return ""


async def undo(op: Operation[None]) -> None: ...


def nothing() -> str:
    return "x"


def missing_key(missing: str) -> str:
    return missing


def another_key(cents: str) -> str:
    return cents


def untold_key(invoice: str) -> int:
    return len(invoice)


async def slow_key(invoice: str) -> str:
    return invoice


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (missing_key, "has no parameter missing"), (another_key, "another type"), (untold_key, "annotate it"),
        (slow_key, "a plain function"), ("INV-7", "a plain function"),
    ],
)  # fmt: skip
def test_a_key_is_a_plain_function_of_the_tools_parameters(given: Any, why: str) -> None:
    one: Outlive[None] = Outlive()
    with pytest.raises(Refused, match=why):
        one.tool(key=given)(act)


def test_what_reads_or_undoes_has_no_key() -> None:
    one: Outlive[None] = Outlive()
    with pytest.raises(Refused, match="read tool"):
        one.tool(key=keyed.invoice_key, effect="read")(act)
    with pytest.raises(Refused, match="what it undoes, it undoes once"):
        one.tool(compensate=one.tool(key=nothing)(undo))(act)


async def test_options_of_a_step_or_a_read_tool_have_no_key(rig: Rig) -> None:
    async def step(run: Run[None], name: str) -> object:
        return await run.options(effect_key="k").step(keyed.invoice_key, "INV-7")

    async def reads(run: Run[None], name: str) -> object:
        return await run.options(effect_key="k").call(keyed.look, "INV-7")

    await begin(rig, "a", body=step)
    worker = await begin(rig, "b", body=reads)
    await rig.settle(worker)
    assert {(await rig.row(run)).status for run in "ab"} == {"failed"}
    assert "effect_key=…" in (await rig.row("a")).detail and "effect_key=…" in (await rig.row("b")).detail
