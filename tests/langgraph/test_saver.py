"""What the conformance tests do not ask: both ways to call, encryption, delta channels, damage, a missing framework."""

from __future__ import annotations

import operator
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph

from outlive.errors import BadArguments, GraphIncomplete, Refused, ThreadHeld
from outlive.langgraph import OutliveSaver, one_writer
from outlive.langgraph.saver import HOLD
from tests.langgraph.chats import asked, chat, said

CONFIG: Any = {"configurable": {"thread_id": "t"}}
PLACE: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/graphs.db" if request.param == "sqlite" else request.getfixturevalue("postgres")


@pytest.fixture
def saver(url: str) -> Iterator[OutliveSaver]:
    with OutliveSaver(url) as one:
        yield one


class Mirror(CipherProtocol):
    """A cipher whose bytes are never twice the same, as those of a real one."""

    def __init__(self) -> None:
        self.count = 0

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        self.count += 1
        return "mirror", self.count.to_bytes(8, "big") + bytes(255 - one for one in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "mirror"
        return bytes(255 - one for one in ciphertext[8:])


def test_what_is_encrypted_is_nowhere_plain_and_stored_once(tmp_path: Path) -> None:
    serde = EncryptedSerializer(Mirror())
    with OutliveSaver(f"sqlite:///{tmp_path}/graphs.db", serde=serde) as saver:
        graph = one_writer(chat(saver, 600))
        for turn in range(12):
            graph.invoke(asked(turn, 600), CONFIG)
        assert len(graph.get_state(CONFIG).values["messages"]) == 24
    with closing(sqlite3.connect(f"{tmp_path}/graphs.db")) as database:
        assert database.execute("select count(*) from graph_piece where length(body) > 300").fetchone()[0] < 40
        everything = "".join(map(str, database.iterdump()))
    assert "answer-1" not in everything and said(1, 600)[:40] not in everything


@pytest.mark.parametrize("size", [1, 8, 9, 40])
@pytest.mark.parametrize("value", ["x", 7, None, b"\0\xff", ["in", "side"], {"of": {"a": "x" * 2000}}, "x" * 5000])
def test_values_come_back_as_they_were(saver: OutliveSaver, value: Any, size: int) -> None:
    values = {"list": [value] * size, "dict": {"a": [value] * size, "b": value}, "one": value, "set": {1, 2}}
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"], checkpoint["channel_versions"] = values, {name: "1" for name in values}
    stored = saver.put(PLACE, checkpoint, {"source": "loop"}, checkpoint["channel_versions"])
    saver.put_writes(stored, [("list", [value] * size), ("other", {"b": [value] * size})], "task")
    found = saver.get_tuple(stored)
    assert found is not None and found.checkpoint["channel_values"] == values
    assert found.pending_writes == [("task", "list", [value] * size), ("task", "other", {"b": [value] * size})]


class Deltas(TypedDict):
    """A list whose checkpoints have only what was added."""

    items: Annotated[list[str], DeltaChannel(lambda one, more: [*one, *(x for each in more for x in each)])]
    turns: Annotated[int, operator.add]


def deltas(saver: OutliveSaver) -> Any:
    built = StateGraph(Deltas)
    built.add_node("add", lambda state: {"items": [f"item {state['turns']}"], "turns": 1})
    built.add_edge(START, "add")
    built.add_conditional_edges("add", lambda state: "add" if state["turns"] % 10 else "__end__", ["add", "__end__"])
    return one_writer(built.compile(checkpointer=saver))


def test_delta_channels_are_rebuilt_also_after_pruning(saver: OutliveSaver) -> None:
    graph = deltas(saver)
    graph.invoke({"items": ["first"], "turns": 0}, CONFIG)
    wanted = ["first", *(f"item {number}" for number in range(10))]
    assert graph.get_state(CONFIG).values["items"] == wanted
    saver.prune(["t"])
    assert graph.get_state(CONFIG).values["items"] == wanted
    graph.invoke({"items": ["more"], "turns": 0}, CONFIG)
    assert graph.get_state(CONFIG).values["items"] == [*wanted, "more", *(f"item {number}" for number in range(10, 20))]


def test_the_history_of_a_delta_channel_is_that_of_the_default(saver: OutliveSaver) -> None:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    graph = deltas(saver)
    graph.invoke({"items": ["first"], "turns": 0}, CONFIG)
    for one in graph.get_state_history(CONFIG):
        asked = {"config": one.config, "channels": ["items", "turns", "none"]}
        ours = saver.get_delta_channel_history(**asked)
        assert ours == BaseCheckpointSaver.get_delta_channel_history(saver, **asked)


def test_bytes_that_are_missing_are_an_error_that_names_them(tmp_path: Path) -> None:
    with OutliveSaver(f"sqlite:///{tmp_path}/graphs.db") as saver:
        graph = one_writer(chat(saver, 600))
        graph.invoke(asked(1, 600), CONFIG)
        with closing(sqlite3.connect(f"{tmp_path}/graphs.db")) as database, database:
            database.execute("delete from graph_piece")
        with pytest.raises(GraphIncomplete, match="of thread t names .*, which is not in the store"):
            graph.get_state(CONFIG)


def test_a_copy_into_a_thread_that_has_checkpoints_is_refused(saver: OutliveSaver) -> None:
    graph = one_writer(chat(saver, 600))
    for thread in ("t", "u"):
        graph.invoke(asked(1, 600), {"configurable": {"thread_id": thread}})
    with pytest.raises(Refused, match="it has checkpoints of its own"):
        saver.copy_thread("t", "u")
    with pytest.raises(BadArguments, match="there is no strategy 'some'"):
        saver.prune(["t"], strategy="some")
    saver.copy_thread("t", "v")
    copied: Any = {"configurable": {"thread_id": "v"}}
    graph.invoke(asked(2, 600), copied)
    assert len(graph.get_state(copied).values["messages"]) == 4 and len(graph.get_state(CONFIG).values["messages"]) == 2


def test_who_lost_a_thread_writes_nothing_to_it(url: str, saver: OutliveSaver) -> None:
    with OutliveSaver(url, lease=timedelta(seconds=0.5)) as slow:
        hold = slow.hold("t")
    # Nobody renews any more.
    other = saver.hold("t", wait=timedelta(seconds=20))
    late: Any = {"configurable": {**PLACE["configurable"], HOLD: hold}}
    with slow, pytest.raises(ThreadHeld, match="thread t is held by"):
        slow.put(late, empty_checkpoint(), {}, {})
    saver.leave(other)
    with slow, pytest.raises(ThreadHeld, match="held by nobody any more"):
        slow.put_writes({"configurable": {**late["configurable"], "checkpoint_id": "1"}}, [("x", 1)], "task")
    assert saver.get_tuple(PLACE) is None and hold.lost


def test_threads_of_another_tenant_are_not_seen(url: str, saver: OutliveSaver) -> None:
    one_writer(chat(saver, 600)).invoke(asked(1, 600), CONFIG)
    with OutliveSaver(url, tenant="other") as other:
        assert other.get_tuple(PLACE) is None and list(other.list(None)) == []
        other.delete_thread("t")
    assert saver.get_tuple(PLACE) is not None


def test_listings_of_all_threads_come_in_pages(saver: OutliveSaver) -> None:
    graph = one_writer(chat(saver, 10))
    for turn in range(25):
        graph.invoke(asked(turn, 10), CONFIG)
    saver.copy_thread("t", "u")
    every = list(saver.list(None))
    assert len({(one.config["configurable"]["thread_id"], one.checkpoint["id"]) for one in every}) == len(every) == 150
    assert [one.checkpoint["id"] for one in every] == sorted((one.checkpoint["id"] for one in every), reverse=True)
    assert len(list(saver.list(None, limit=60))) == 60
    assert len(list(saver.list(None, filter={"source": "input"}, limit=30))) == 30


def test_without_langgraph_the_extra_is_named() -> None:
    hidden = "import sys; sys.modules['langgraph'] = None; import outlive; import outlive.langgraph"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert "pip install 'outlive[langgraph]'" in done.stderr


def test_nothing_else_imports_it() -> None:
    program = "import sys, outlive, outlive.cli, outlive.sync; print([one for one in sys.modules if 'lang' in one])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
def test_what_no_store_can_name_a_thread_by_is_an_error_of_who_says_it(saver: OutliveSaver, odd: str) -> None:
    """Not that of a store which cannot be reached: that would be tried again."""
    config: Any = {"configurable": {"thread_id": odd, "checkpoint_ns": ""}}
    graph = one_writer(chat(saver, 600))
    ways: list[Callable[[], object]] = [
        lambda: graph.invoke(asked(1, 600), config), lambda: saver.get_tuple(config), lambda: saver.delete_thread(odd),
        lambda: saver.copy_thread("t", odd), lambda: saver.prune([odd]), lambda: saver.delete_for_runs([odd]),
        lambda: saver.hold(odd), lambda: list(saver.list(config)),
    ]  # fmt: skip
    for way in ways:
        with pytest.raises(BadArguments, match="which cannot be stored"):
            way()
