"""Bundles that somebody has made who holds the key that they carry: whatever is in them, nothing but a refusal comes of
it, and the store is as it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlive.app.carry import take_in
from outlive.duty.bundle import Bundle, _sealed
from outlive.errors import BadBundle
from outlive.model.ids import Tenant
from outlive.testing.store_scene import Scene
from tests.duty.conftest import in_file
from tests.duty.ground import kept, left
from tests.duty.test_bundles import exported, full

Body = dict[str, Any]
Change = Callable[[list[Body]], None]


def bodies(lines: list[bytes]) -> list[Body]:
    found: list[Body] = [json.loads(line) for line in lines]
    for one in found:
        del one["mac"]
    return found


def forged(lines: list[bytes], change: Change) -> list[bytes]:
    """The bundle with a change, sealed anew under the key that it carries."""
    found = bodies(lines)
    secret = bytes.fromhex(found[0]["key"])
    change(found)
    found[-1]["lines"] = len(found)
    made, last = [], b""
    for one in found:
        line, last = _sealed(secret, last, one)
        made.append(line.encode())
    return made


def sets(kind: str, column: str, value: object) -> Change:
    def change(found: list[Body]) -> None:
        next(one for one in found if one.get("kind") == kind)["row"][column] = value

    return change


def drops(kind: str, column: str) -> Change:
    def change(found: list[Body]) -> None:
        del next(one for one in found if one.get("kind") == kind)["row"][column]

    return change


def heads(name: str, value: object) -> Change:
    def change(found: list[Body]) -> None:
        found[0][name] = value

    return change


def repeats(kind: str) -> Change:
    def change(found: list[Body]) -> None:
        place = next(place for place, one in enumerate(found) if one.get("kind") == kind)
        found.insert(place, json.loads(json.dumps(found[place])))

    return change


NO_TEXTS: tuple[object, ...] = ("a\0b", "\ud800", -1, 2**63, True, 1.5, [], {})
NO_INTEGERS: tuple[object, ...] = ("no", 2**63, -(2**70), True, 1.5, [], {})
NO_WORDS: tuple[object, ...] = ("no", "", "\x1b[31m", None)
NO_OBJECTS: tuple[object, ...] = ("no", "[]", "[" * 50_000)
WRONG: tuple[tuple[str, str, tuple[object, ...]], ...] = (
    ("run", "id agent version status head input_digest origin queue reason labels principal fork_of", NO_TEXTS),
    ("entry", "kind scope key body payload blob data_class digest", NO_TEXTS),
    ("operation", "id call tool effect key digest arguments status outcome error notes", NO_TEXTS),
    ("message", "topic sender_key body", NO_TEXTS),
    ("divergence", "code report", NO_TEXTS),
    ("run", "epoch next_seq created_at priority wake_at deadline_at paused_at ended_at lapses forked", NO_INTEGERS),
    ("entry", "seq epoch version at", NO_INTEGERS),
    ("operation", "attempt epoch first_sent_at updated_at not_before duplicates seq", NO_INTEGERS),
    ("message", "at taken_seq", NO_INTEGERS),
    ("divergence", "at", NO_INTEGERS),
    ("run", "status head", NO_WORDS),
    ("run", "id queue", ("", "\n", "\x1b[31m", "x" * 201)),
    ("run", "id", ("another",)),
    ("operation", "status effect", NO_WORDS),
    ("entry", "digest", ("no", "")),
    ("run", "labels", NO_OBJECTS),
    ("operation", "notes", NO_OBJECTS),
)  # fmt: skip
COLUMNS = [(kind, column) for kind, names, _ in WRONG for column in names.split()]


@pytest.fixture
async def made(tmp_path: Path) -> list[bytes]:
    scene = await Scene.set(in_file(tmp_path))
    try:
        await full(scene)
        return await exported(kept(scene))
    finally:
        await scene.close()


def read(lines: list[bytes]) -> None:
    bundle = Bundle(lines)
    assert bundle.header.key is not None
    for _ in bundle.parts(bundle.header.key):
        pass


def test_a_bundle_that_is_sealed_anew_is_read(made: list[bytes]) -> None:
    assert forged(made, lambda _: None) == made
    read(made)


def test_a_value_of_another_type_is_refused_with_its_line(made: list[bytes]) -> None:
    for kind, names, values in WRONG:
        for column in names.split():
            for value in values:
                with pytest.raises(BadBundle, match="line"):
                    read(forged(made, sets(kind, column, value)))
                    pytest.fail(f"{kind}.{column} = {value!r} was read")


def test_a_column_that_is_not_there_is_refused(made: list[bytes]) -> None:
    for kind, column in dict.fromkeys(COLUMNS):
        with pytest.raises(BadBundle, match=f"{column} is not there"):
            read(forged(made, drops(kind, column)))


@pytest.mark.parametrize("name", ["tenant", "run"])
def test_a_header_that_names_nothing_is_refused(made: list[bytes], name: str) -> None:
    for value in (*NO_TEXTS, "", " ", "\x1b[31m", "x" * 201, None):
        with pytest.raises(BadBundle, match=f"line 1 of the bundle.*{name}"):
            read(forged(made, heads(name, value)))


async def test_nothing_of_it_is_stored(scene: Scene, made: list[bytes]) -> None:
    before = left(scene)
    for change in (sets("run", "status", "no"), sets("divergence", "at", "no"), sets("message", "body", "a\0b")):
        with pytest.raises(BadBundle):
            await take_in(kept(scene), forged(made, change), Tenant("other"))
        assert left(scene) == before
        assert await kept(scene).known_key(Tenant("other")) is None


async def test_what_is_there_twice_is_refused_with_its_line(scene: Scene, made: list[bytes]) -> None:
    before = left(scene)
    for kind in ("run", "entry", "operation", "message", "divergence"):
        with pytest.raises(BadBundle, match=r"line \d+ of the bundle"):
            await take_in(kept(scene), forged(made, repeats(kind)), Tenant("other"))
        assert left(scene) == before
