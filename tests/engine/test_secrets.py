"""A secret that a tool has read is in nothing that is written, and what cannot be written without it is not lost."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from outlive import Operation, Run
from tests.engine import subject
from tests.engine.rig import Rig, rig_at
from tests.engine.subject import RUN, act, add, begin, does, look

CANARY = "7391882640"


class Vault:
    """One secret, of digits: it can hide in a number."""

    def get(self, name: str) -> str | None:
        return CANARY if name == "bank/pin" else None

    def describe(self, name: str) -> str:
        return "the vault"

    def names(self) -> list[str]:
        return []


class OpenVault(Vault):
    """The same, listing what it has."""

    def names(self) -> list[str]:
        return ["bank/pin"]


def all_bytes(directory: Path) -> bytes:
    """Every byte of every file."""
    return b"".join(file.read_bytes() for file in directory.iterdir())


async def leak(text: str) -> str:
    return f"the pin is {CANARY}"


async def leak_number(text: str) -> int:
    return int(CANARY)


async def test_what_holds_the_canary_is_scrubbed_everywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    subject.reset()

    async def tool(op: Operation[None]) -> str:
        pin = await op.secret("bank/pin")
        op.log.warning("using %s", pin)
        await op.note(pin=pin)
        raise ConnectionError(f"refused {pin}")

    async def body(run: Run[None]) -> object:
        said = await run.step(leak, "x")
        run.log.warning("said %s", said)
        return await run.call(act, f"with {CANARY}")

    async with rig_at(tmp_path, secrets=Vault()) as rig:
        does.tool = tool

        async def reads_first(run: Run[None]) -> object:
            async def quiet(op: Operation[None]) -> str:
                await op.secret("bank/pin")
                return "ok"

            does.tool = quiet
            await run.call(look, "x")
            does.tool = tool
            return await body(run)

        with caplog.at_level(logging.DEBUG):
            await rig.settle(await begin(rig, reads_first))
        assert (await rig.row(RUN)).reason == "operation in doubt"
        assert "[secret bank/pin]" in (await rig.entries(RUN))[3].payload  # type: ignore[operator]  # it has a payload
    written = all_bytes(tmp_path)
    assert b"in doubt" in written, "the scanner reads what was written"
    assert CANARY.encode() not in written
    assert "using" in caplog.text
    assert CANARY not in caplog.text


async def test_a_secret_where_no_text_can_stand_is_refused_not_stored(tmp_path: Path) -> None:
    subject.reset()

    async def tool(op: Operation[None]) -> str:
        await op.secret("bank/pin")
        return "ok"

    async def body(run: Run[None]) -> object:
        await run.call(look, "x")
        return await run.step(leak_number, "x")

    async with rig_at(tmp_path, secrets=Vault()) as rig:
        does.tool = tool
        await rig.settle(await begin(rig, body))
        row = await rig.row(RUN)
        assert row.status == "failed"
        assert "it holds the value of a secret" in row.detail


async def test_a_missing_secret_says_where_it_was_looked_for(tmp_path: Path) -> None:
    subject.reset()

    async def tool(op: Operation[None]) -> str:
        await op.secret("bank/token")
        return "never"

    async def body(run: Run[None]) -> object:
        await run.step(add, 1)
        return await run.call(look, "x")

    async with rig_at(tmp_path, secrets=Vault()) as rig:
        does.tool = tool
        row = await rig.until_ended(await begin(rig, body), RUN)
        assert "no secret 'bank/token'; tried the vault" in row.detail


async def test_a_listed_secret_is_scrubbed_by_a_worker_that_never_read_it(tmp_path: Path) -> None:
    subject.reset()

    async def body(run: Run[None]) -> object:
        return await run.step(leak, "x")

    async with rig_at(tmp_path, secrets=OpenVault()) as rig:
        await rig.settle(await begin(rig, body))
        assert (await rig.entries(RUN))[2].payload == '"the pin is [secret bank/pin]"'


async def test_nothing_is_scrubbed_before_a_secret_was_read(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await run.step(leak, "x")

    await rig.settle(await begin(rig, body))
    assert CANARY in str((await rig.entries(RUN))[2].payload)
