"""What is stored grows with what was said, not with its square; and nothing that is stored is lost or mixed up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.checkpoint.base import empty_checkpoint

from outlive.langgraph import OutliveSaver, one_writer
from outlive.store.postgres.connection import place_of
from tests.langgraph.chats import asked, chat, loop, notes, said

CONFIG: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 10_000}
TABLES = ("checkpoint", "value", "write", "piece", "chain", "link")
SIZE = 2000


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/graphs.db" if request.param == "sqlite" else request.getfixturevalue("postgres")


@pytest.fixture
def saver(url: str) -> Iterator[OutliveSaver]:
    with OutliveSaver(url) as one:
        yield one


def rows(url: str, table: str, *, where: str = "") -> list[tuple[Any, ...]]:
    query = f"select * from graph_{table} {where}"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            return database.execute(query).fetchall()
    with psycopg.connect(place_of(url).conninfo) as connection:
        return connection.execute(query.encode()).fetchall()


def stored(url: str) -> int:
    """All bytes of all columns; numbers count eight."""
    each = [value for table in TABLES for row in rows(url, table) for value in row]
    return sum(len(one.encode()) if isinstance(one, str) else len(one) if isinstance(one, bytes) else 8 for one in each)


@pytest.mark.parametrize("graph", [loop, notes])
def test_twice_the_turns_take_twice_the_bytes(url: str, saver: OutliveSaver, graph: Any) -> None:
    begin = {"messages": []} if graph is loop else {"notes": [], "turns": 0}
    found = []
    for turns in (100, 200):
        one_writer(graph(saver, turns, SIZE)).invoke(begin, CONFIG, durability="sync")
        found.append(stored(url))
        saver.delete_thread("t")
        assert stored(url) == 0
    assert found[1] < 2.1 * found[0]
    # What was said, once; what LangGraph writes of each step; and the rows that say which is where.
    assert found[1] < 1.9 * 200 * SIZE


def test_every_checkpoint_of_a_long_thread_has_what_it_had(saver: OutliveSaver) -> None:
    one_writer(loop(saver, 60, 200)).invoke({"messages": []}, CONFIG, durability="sync")
    lengths = []
    for one in saver.list({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}):
        messages = one.checkpoint["channel_values"].get("messages", [])
        assert [message.content for message in messages] == [said(number, 200) for number in range(len(messages))]
        lengths.append(len(messages))
    assert lengths[0] == 60 and set(lengths) >= set(range(1, 61))


def test_a_new_process_goes_on_with_what_is_there(url: str) -> None:
    for turn in range(20):
        with OutliveSaver(url) as saver:
            one_writer(chat(saver, 500)).invoke(asked(turn, 500), CONFIG)
    assert len(rows(url, "link")) == 40 and len(rows(url, "chain")) == 1


def test_what_is_changed_in_the_middle_shares_what_comes_before(url: str, saver: OutliveSaver) -> None:
    graph = one_writer(chat(saver, 200))
    for turn in range(40):
        graph.invoke(asked(turn, 200), CONFIG)
    before = len(rows(url, "link"))
    graph.update_state(CONFIG, {"messages": [AIMessage("changed", id="answer-75")]})
    graph.update_state(CONFIG, {"messages": [RemoveMessage(id="question-39")]})
    contents = [one.content for one in graph.get_state(CONFIG).values["messages"]]
    assert len(contents) == 79 and contents[75] == "changed" and contents[74] == said(37, 200)
    assert len(rows(url, "link")) - before < 20
    first = [one for one in graph.get_state_history(CONFIG)][-1]
    assert first.values.get("messages", []) == []


def test_two_branches_of_a_thread_do_not_mix(saver: OutliveSaver) -> None:
    graph = one_writer(chat(saver, 200))
    for turn in range(12):
        graph.invoke(asked(turn, 200), CONFIG)
    middle = [one for one in graph.get_state_history(CONFIG) if len(one.values.get("messages", ())) == 12][0]
    other = graph.invoke(asked(99, 200), middle.config)
    assert [one.id for one in other["messages"]][-2:] == ["question-99", "answer-13"]
    ends = [one for one in graph.get_state_history(CONFIG) if len(one.values.get("messages", ())) == 24]
    assert ends[0].values["messages"][-1].id == "answer-23"


def test_pruning_leaves_the_last_checkpoint_whole_and_nothing_else(url: str, saver: OutliveSaver) -> None:
    graph = one_writer(chat(saver, 200))
    for turn in range(12):
        graph.invoke(asked(turn, 200), CONFIG)
    graph.update_state(CONFIG, {"messages": [AIMessage("x" * 2000, id="gone")]})
    graph.update_state(CONFIG, {"messages": [RemoveMessage(id="gone")]})
    before, values = stored(url), graph.get_state(CONFIG).values
    saver.prune(["t"])
    assert graph.get_state(CONFIG).values == values and len(list(graph.get_state_history(CONFIG))) == 1
    assert stored(url) < before and len(rows(url, "piece")) <= 24
    # Who knew the thread before goes on with what is there now.
    assert len(graph.invoke(asked(50, 200), CONFIG)["messages"]) == 26
    with OutliveSaver(url) as other:
        assert len(one_writer(chat(other, 200)).get_state(CONFIG).values["messages"]) == 26


def test_two_savers_that_write_to_one_thread_in_turn_lose_nothing(url: str) -> None:
    with OutliveSaver(url) as one, OutliveSaver(url) as other:
        for turn in range(12):
            graph = one_writer(chat(one if turn % 2 else other, 200))
            assert len(graph.invoke(asked(turn, 200), CONFIG)["messages"]) == 2 * turn + 2
        one.prune(["t"])
        for turn in range(12, 16):
            graph = one_writer(chat(one if turn % 2 else other, 200))
            assert len(graph.invoke(asked(turn, 200), CONFIG)["messages"]) == 2 * turn + 2


def test_a_saver_that_builds_on_what_was_taken_away_writes_it_anew(url: str) -> None:
    """Without a read between: what it remembers of the thread is all it goes by."""
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with OutliveSaver(url) as one, OutliveSaver(url) as other:
        for version in range(1, 4):
            checkpoint = empty_checkpoint()
            checkpoint["id"] = f"{version:036}"
            checkpoint["channel_values"] = {"x": [said(number, 300) for number in range(20 + version)]}
            checkpoint["channel_versions"] = {"x": version}
            one.put(config, checkpoint, {}, {"x": version})
            if version == 2:
                other.delete_thread("t")
        [last] = other.list(config)
        assert last.checkpoint["channel_values"]["x"] == [said(number, 300) for number in range(23)]
