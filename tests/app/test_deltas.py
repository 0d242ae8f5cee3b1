"""Text on its way: seen by who is there, in one order with what is committed, and by nobody when it is over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import cast

import pytest
from pydantic import BaseModel

from outlive import Handle, Operation, Run
from outlive.app.following import Following
from outlive.engine import streaming
from outlive.engine.streaming import Streams
from outlive.engine.worker import Worker
from outlive.errors import StoreUnavailable
from outlive.events import Event, stream
from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.run import Authority
from outlive.secret.scrubber import Scrubber
from outlive.store.streaming import Delta, Over, Streaming
from tests.app.test_events import handle
from tests.engine.rig import Rig
from tests.engine.subject import RUN, act, base, begin, carry_on, does, look, note_down

TICK = timedelta(milliseconds=100)


class Text(BaseModel):
    text: str


class Play:
    """What the calls of a test wait for, and how often each was made."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.said = asyncio.Event()
        self.made = 0
        self.pieces = ["one ", "two"]


play = Play()


@pytest.fixture(autouse=True)
async def fresh() -> None:
    play.__dict__.update(vars(Play()))


async def write(topic: str) -> str:
    play.made += 1
    for piece in play.pieces:
        stream(piece)
    play.said.set()
    await play.go.wait()
    return topic


async def body(run: Run[None]) -> object:
    text = await run.step(write, "tea")
    await run.emit("text", Text(text=text))
    return None


def streams_of(worker: Worker, store: object, rig: Rig) -> Streams:
    streams = Streams(cast(Streaming, store), rig.clock, worker.kit.scrubber)
    worker.kit = replace(worker.kit, streams=streams)
    return streams


def streaming_of(rig: Rig) -> Streaming:
    assert isinstance(rig.store, Streaming)
    return rig.store


async def rows(rig: Rig) -> list[Delta]:
    return await streaming_of(rig).deltas(DEFAULT_TENANT, RunId(RUN), after=0, limit=1000)


async def ticking(rig: Rig, done: Callable[[], bool]) -> None:
    """Let time pass until it is so."""
    never = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(60):
        while not done():
            rig.clock.advance(TICK)
            await asyncio.wait([never], timeout=0.002)


class Follower:
    """Reads events in a task of its own, and keeps them."""

    def __init__(self, handle: Handle[object], after: str | None = None) -> None:
        self.seen: list[Event] = []
        self._events = handle.events(after=after, deltas=True)
        self.task = asyncio.ensure_future(self._read(self._events))

    async def _read(self, events: AsyncGenerator[Event]) -> None:
        async with aclosing(events):
            async for event in events:
                self.seen.append(event)

    @property
    def told(self) -> list[tuple[str, object]]:
        return [(one.name, "over" if one.data.get("over") else one.data.get("text")) for one in self.seen]

    def has(self, text: str) -> bool:
        return any(told == text for _, told in self.told)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_text_of_a_step_is_seen_before_its_record_and_not_after(rig: Rig) -> None:
    worker = await begin(rig, body)
    streams = streams_of(worker, rig.store, rig)
    follower = Follower(handle(rig))
    await worker.claim()
    await play.said.wait()
    await ticking(rig, lambda: len(follower.seen) == 1)
    [delta] = follower.seen
    assert (delta.name, delta.data) == ("write", {"text": "one two", "place": 0, "over": False})
    assert delta.attempt is not None and (delta.attempt.epoch, delta.attempt.number) == (1, 1)
    play.go.set()
    await worker.idle()
    await ticking(rig, follower.task.done)
    assert follower.told == [("write", "one two"), ("write", "over"), ("text", "tea"), ("run.ended", None)]
    assert follower.seen[1].attempt == delta.attempt
    await streams.end()
    assert await rows(rig) == []
    assert "one two" not in "".join(f"{entry.body}{entry.payload}" for entry in await rig.entries(RUN))


async def test_who_comes_late_sees_all_of_a_call_that_is_being_made(rig: Rig) -> None:
    worker = await begin(rig, body)
    streams = streams_of(worker, rig.store, rig)
    await worker.claim()
    await play.said.wait()
    first = Follower(handle(rig))
    await ticking(rig, lambda: len(first.seen) == 1)
    second = Follower(handle(rig), after=first.seen[0].cursor)
    await ticking(rig, lambda: len(second.seen) == 1)
    assert second.seen == first.seen
    play.go.set()
    await worker.idle()
    await ticking(rig, lambda: first.task.done() and second.task.done())
    committed = [event async for event in handle(rig).events()]
    assert [one for one in second.seen if one.attempt is None] == committed
    await streams.end()


async def test_a_cursor_of_text_goes_on_where_the_log_was(rig: Rig) -> None:
    async def several(run: Run[None]) -> object:
        for number in range(3):
            run.stream("text", f"half of {number}")
            play.go.clear()
            play.said.set()
            await run.step(_waits, number)
            await run.emit("text", Text(text=str(number)))
        return None

    worker = await begin(rig, several)
    streams = streams_of(worker, rig.store, rig)
    await worker.claim()
    follower = Follower(handle(rig))
    for number in range(3):
        await ticking(rig, partial(follower.has, f"half of {number}"))
        play.go.set()
    await worker.idle()
    await ticking(rig, follower.task.done)
    expected = [part for n in range(3) for part in (("text", f"half of {n}"), ("text", "over"), ("text", str(n)))]
    assert follower.told == [*expected, ("run.ended", None)]
    committed = [one for one in follower.seen if one.attempt is None]
    for at, event in enumerate(follower.seen):
        rest = [one async for one in handle(rig).events(after=event.cursor)]
        assert rest == [one for one in follower.seen[at + 1 :] if one.attempt is None], event
    assert [one.data.get("text") for one in committed[:3]] == ["0", "1", "2"]
    await streams.end()
    assert await rows(rig) == []


async def _waits(number: int) -> int:
    await play.go.wait()
    return number


async def test_after_a_crash_the_next_attempt_is_seen_as_another(rig: Rig) -> None:
    worker = await begin(rig, body)
    worker = rig.mortal(rig.app(base), code="first")
    lost = streams_of(worker, worker.store, rig)
    follower = Follower(handle(rig))
    await worker.claim()
    await ticking(rig, lambda: len(follower.seen) == 1)
    await rig.crash(worker, play.said)
    gone = asyncio.ensure_future(lost.end())
    play.pieces, play.go = ["other"], asyncio.Event()
    second = await carry_on(rig, body, code="first")
    streams = streams_of(second, rig.store, rig)
    taking = asyncio.ensure_future(rig.take_over(second))
    await ticking(rig, lambda: ("write", "other") in follower.told)
    play.go.set()
    await taking
    await ticking(rig, follower.task.done)
    assert follower.told == [
        ("write", "one two"), ("write", "over"), ("write", "other"), ("write", "over"), ("text", "tea"),
        ("run.ended", None),
    ]  # fmt: skip
    attempts = [one.attempt for one in follower.seen if one.attempt is not None]
    assert [(one.call == attempts[0].call, one.epoch, one.number) for one in attempts] == [
        (True, 1, 1), (True, 1, 1), (True, 2, 1), (True, 2, 1),
    ]  # fmt: skip
    gone.cancel()
    await streams.end()
    assert await rows(rig) == []


async def test_tools_stream_and_replay_is_silent(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def tools(run: Run[None]) -> object:
        run.stream("text", "first")
        await run.emit("text", Text(text="done"))
        for tool in (look, act):
            await run.call(tool, tool.name)
        await run.sleep(timedelta(hours=1))
        return None

    async def streams_text(op: Operation[None]) -> str:
        thread = threading.Thread(target=lambda: op.stream("from a thread"))
        thread.start()
        thread.join()
        op.stream(f" of {op.arguments['what']}")
        return "done"

    worker = await begin(rig, tools)
    does.tool = streams_text
    added: list[tuple[str, str]] = []
    streams = streams_of(worker, rig.store, rig)
    monkeypatch.setattr(streams, "add", lambda one, text: added.append((one.name, text)))
    await rig.settle(worker)
    expected = [(tool.name, text) for tool in (look, act) for text in ("from a thread", f" of {tool.name}")]
    assert added == [("text", "first"), *expected]
    rig.clock.advance(timedelta(hours=1))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert len(added) == 1 + len(expected)


async def test_what_is_streamed_inside_a_transaction_does_not_disturb_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    async def tools(run: Run[None]) -> object:
        return await run.call(note_down, "it")

    async def streams_text(op: Operation[None]) -> str:
        op.stream("text")
        # Until it is being written, which has to wait for this transaction.
        await ticking(rig, lambda: not streams._waiting)
        return "done"

    if rig.store.name != "runs":
        pytest.skip("the tool of these tests speaks SQLite")
    worker = await begin(rig, tools)
    does.tool = streams_text
    streams = streams_of(worker, rig.store, rig)
    await rig.settle(worker)
    await streams.end()
    assert (await rig.row(RUN)).status == "succeeded"
    assert "not seen" not in caplog.text


async def test_what_is_beyond_a_limit_is_left_out(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def several(run: Run[None]) -> object:
        await run.gather(*[run.step(write, str(number)) for number in range(5)])
        return None

    monkeypatch.setattr(streaming, "MOST_OF_RUN", 5 * streaming.MOST_OF_CALL - 10)
    play.pieces = ["x" * (streaming.MOST_OF_CALL - 1), "yz", "z"]
    worker = await begin(rig, several)
    streams = streams_of(worker, rig.store, rig)
    await worker.claim()
    await play.said.wait()
    async with asyncio.timeout(60):
        while sum(len(one.text) for one in await rows(rig)) < streaming.MOST_OF_RUN:
            rig.clock.advance(TICK)
    by_call: dict[str, str] = {}
    for one in await rows(rig):
        assert len(one.text) <= streaming.MOST_OF_PIECE and one.place == len(by_call.get(one.call, ""))
        by_call[one.call] = by_call.get(one.call, "") + one.text
    assert sorted(len(text) for text in by_call.values()) == [
        streaming.MOST_OF_CALL - 10, *[streaming.MOST_OF_CALL] * 4,
    ]  # fmt: skip
    assert sum(text.endswith("y") for text in by_call.values()) == 4
    play.go.set()
    await worker.idle()
    await streams.end()
    assert await rows(rig) == []


async def test_a_secret_that_comes_in_pieces_is_hidden(rig: Rig) -> None:
    worker = await begin(rig, body)
    worker.kit.scrubber.register("token", "sesame-open")
    streams = streams_of(worker, rig.store, rig)
    await worker.claim()
    await play.said.wait()
    follower = Follower(handle(rig))
    [of_step] = streams._waiting
    for piece in ("; say ses", "ame", "-op", "en, please sesame"):
        await ticking(rig, lambda: not streams._waiting)
        of_step.add(piece)
    await ticking(rig, lambda: not streams._waiting)
    await ticking(rig, lambda: "please" in "".join(str(text) for _, text in follower.told))
    assert "".join(str(text) for _, text in follower.told) == "one two; say [secret token], please "
    play.go.set()
    await worker.idle()
    await streams.end()
    await follower.stop()


async def test_a_store_that_does_not_answer_costs_a_run_nothing(rig: Rig) -> None:
    class Broken:
        calls = 0

        async def add_deltas(self, deltas: object, over: object, *, now: object) -> None:
            self.calls += 1
            raise StoreUnavailable(store="it", why="it is not there")

    worker = await begin(rig, body)
    broken = Broken()
    streams = streams_of(worker, broken, rig)
    await worker.claim()
    await play.said.wait()
    await ticking(rig, lambda: broken.calls > 0)
    play.go.set()
    await worker.idle()
    assert (await rig.row(RUN)).status == "succeeded"
    await streams.end()


async def test_only_text_is_streamed(rig: Rig) -> None:
    play.pieces = [cast(str, b"bytes")]
    worker = await begin(rig, body)
    streams = streams_of(worker, rig.store, rig)
    await rig.settle(worker)
    await streams.end()
    assert "BadArguments" in (await rig.row(RUN)).detail
    assert "a text is streamed, not bytes" in (await rig.row(RUN)).detail
    stream("outside of a call it does nothing")


def entry(seq: int, fact: kinds.Fact, key: str = "") -> Entry:
    draft = kinds.draft(fact, at=0, key=key, payload=None)
    return Entry(seq, 1, draft.kind, draft.version, 0, "", key, draft.body, None, None, "", "", b"")


def piece(call: str, after_seq: int, position: int, text: str = "text") -> Delta:
    return Delta(call, 1, 1, "write", after_seq, 0, text, position)


STEP = kinds.StepDone(name="write", digest="", shown="", attempt=1)
JOINED = kinds.Joined(branch="", how="won")
AGAIN = kinds.ClaimedBy(owner="anna", why="again")
TAKEN = kinds.ClaimedBy(owner="boris", why="takeover")
STOOD = kinds.Released(why="drain")


@pytest.mark.parametrize(
    ("entry", "over"),
    [
        (entry(5, STEP, "/write/0"), True), (entry(5, STEP, "/write/1"), False), (entry(5, JOINED, "/gather/0"), False),
        (entry(5, TAKEN), True), (entry(5, AGAIN), False), (entry(5, STOOD), True),
    ],
)  # fmt: skip
def test_what_was_over_before_one_came_is_not_shown(entry: Entry, over: bool) -> None:
    following = Following(5)
    late = [piece("/write/0", 4, 1)]
    assert following.lacks(late) == (4, 6)
    following.learn([entry], 4)
    assert [one.data["text"] for one in following.show(late, "5")] == ([] if over else ["text"])
    assert following.position == 1


def test_the_end_of_branches_ends_what_is_below_and_text_waits_for_what_was_there_before() -> None:
    following = Following(3)
    both = [piece("/gather/0:a/write/0", 4, 1), piece("/write/0", 6, 2)]
    assert [one.attempt and one.attempt.call for one in following.show(both, "3")] == ["/gather/0:a/write/0"]
    assert following.position == 1, "what comes later is not passed over"
    over = [one for seq in (4, 5) for one in following.passed(entry(seq, JOINED, "/gather/0"), "3")]
    assert [(one.attempt and one.attempt.call, one.data["over"]) for one in over] == [("/gather/0:a/write/0", True)]
    assert [one.attempt and one.attempt.call for one in following.show(both[1:], "5")] == ["/write/0"]


def test_a_value_in_pieces_is_kept_back_as_a_whole() -> None:
    scrubber = Scrubber()
    scrubber.register("one", "abcab")
    assert scrubber.split("x abc") == ("x ", "abc")
    assert scrubber.split("x abcab") == ("x ", "abcab"), "its end may be the beginning of another"
    assert scrubber.split("x abcab y") == ("x [secret one] y", "")
    assert scrubber.split("") == ("", "")


class Withholding:
    """Is told what is over, and does not do it while it is held."""

    def __init__(self, real: Streaming) -> None:
        self._real, self.held, self.asked = real, True, asyncio.Event()

    async def add_deltas(
        self, deltas: Sequence[tuple[Authority, Delta]], over: Sequence[Over], *, now: int | None = None
    ) -> None:
        if over and self.held:
            self.asked.set()
            await asyncio.Event().wait()
        await self._real.add_deltas(deltas, over, now=now)


async def test_what_is_over_is_taken_away_though_the_worker_ends_while_it_is_being_done(rig: Rig) -> None:
    worker = await begin(rig, body)
    store = Withholding(streaming_of(rig))
    streams = streams_of(worker, store, rig)
    await worker.claim()
    await play.said.wait()
    never = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(60):
        while not await rows(rig):
            rig.clock.advance(TICK)
            await asyncio.wait([never], timeout=0.002)
    play.go.set()
    await worker.idle()
    await ticking(rig, store.asked.is_set)
    assert await rows(rig) != []
    store.held = False
    await streams.end()
    assert await rows(rig) == []
