"""What is longer or deeper than anybody could read is refused where it is given, and nothing of it is stored."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from outlive import DidNotHappen
from outlive.app import decide, mail, rollback
from outlive.app.complete import complete
from outlive.engine.adoption import Acceptance
from outlive.errors import BadArguments, NotSerialisable, Refused
from outlive.model.ids import DEFAULT_TENANT
from outlive.testing import lab
from tests.app.test_given import app, idle

WORDS = "w" * 2001
NAME = "n" * 201


@pytest.mark.parametrize(
    ("what", "given"),
    [
        ("the principal 'nnn", {"principal": NAME}),
        ("the identity 'nnn", {"identity": NAME}),
        ("the purpose 'www", {"purpose": WORDS}),
        ("the label 'nnn", {"labels": {NAME: "x"}}),
        ("the label k 'nnn", {"labels": {"k": NAME}}),
        ("it has 65 labels, at most 64", {"labels": {str(n): "" for n in range(65)}}),
    ],
)
async def test_what_is_said_of_a_run_has_its_length(what: str, given: dict[str, Any]) -> None:
    async with lab(app, deps=None) as t:
        client = t._world.client
        with pytest.raises(BadArguments, match=what):
            await client.start(idle, 1, id="r", **given)
        labels = {str(n): NAME[1:] for n in range(64)}
        await client.start(idle, 1, id="r", principal=NAME[1:], purpose=WORDS[1:], labels=labels)


async def test_what_people_say_has_its_length() -> None:
    async with lab(app, deps=None) as t:
        run = await t.start(idle, 1, id="r")
        before = await t.log(run)
        for who, why in (("ada", WORDS), (NAME, "so")):
            for verb in (run.cancel, run.pause, run.resume, run.terminate, run.fork, run.rollback):
                with pytest.raises(BadArguments):
                    await verb(who=who, why=why)
            with pytest.raises(BadArguments):
                await decide.retry(t._control(), DEFAULT_TENANT, "r", who=who, why=why)
            with pytest.raises(BadArguments):
                await decide.adopt(t._control(), DEFAULT_TENANT, "r", Acceptance("skip", who, why))
            with pytest.raises(BadArguments, match="resolve"):
                await decide.resolve(t._control(), app.registry, DEFAULT_TENANT, "r", "op", "abandon", who=who, why=why)
            with pytest.raises(BadArguments, match="rollback"):
                await rollback.ask(t._world.store, DEFAULT_TENANT, "r", who=who, why=why)
            with pytest.raises(BadArguments, match="complete"):
                control = t._control()
                await complete(control, app.registry, DEFAULT_TENANT, "op", DidNotHappen(), key="k", who=who, why=why)
        assert await t.log(run) == before
        assert await t._world.store.unread(DEFAULT_TENANT, (await t._world.row("r")).id) == []


async def test_a_pause_waits_for_no_negative_time() -> None:
    async with lab(app, deps=None) as t:
        run = await t.start(idle, 1)
        with pytest.raises(Refused, match="a time is not negative"):
            await run.pause(who="ada", wait=timedelta(seconds=-1))
        assert await t.status(run) == "ready"


def nested(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels - 1):
        value = [value]
    return value


async def test_what_is_nested_too_deeply_to_be_read_is_refused() -> None:
    deep, deeper = nested(201), nested(202)
    async with lab(app, deps=None) as t:
        with pytest.raises(NotSerialisable, match="could not be read"):
            await t.start(idle, deeper)
        run = await t.start(idle, deep)
        with pytest.raises(NotSerialisable, match="could not be read"):
            await t.send(run, "offers", deeper)
        await t.send(run, "offers", deep)
        await run.result()
    assert mail.check_json(json.dumps(deep), "the message") == json.dumps(deep)
    with pytest.raises(BadArguments, match="the message: nobody could read it: recursion limit"):
        mail.check_json(json.dumps(deeper), "the message")
