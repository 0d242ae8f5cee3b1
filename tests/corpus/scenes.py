"""What happens to the runs of the corpus until they are recorded: to those that end, and to those that go on."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from outlive import Agent, Handle
from outlive.app import decide, mail
from outlive.app.approvals import Approvals
from outlive.app.carry import bundle_of
from outlive.engine import inbox
from outlive.engine.cancelling import Request, written
from outlive.engine.control import Control
from outlive.engine.worker import Worker
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import RunRow
from outlive.store.port import Message
from tests.corpus import agents, before, graphs
from tests.corpus.deck import Backup, Deck, Token, World
from tests.corpus.people import FRAMEWORKS, RECORDED, Person, Release, adopted, app
from tests.mcp.caller import at
from tests.sweep import keys, letters
from tests.sweep import later as later_scenes

Happens = Callable[["Stage"], Awaitable[None]]


@dataclass
class Stage:
    """A store in which something happens to runs, and what was taken of them."""

    deck: Deck
    world: World
    taken: dict[str, list[bytes]] = field(default_factory=dict)

    async def start(self, agent: Agent[Any, Any], input: object = "inv", *, id: str = "", **more: Any) -> Handle[Any]:
        client = type(app)(clock=self.deck.clock)
        client.registry = app.registry
        client.use(self.deck.store)
        self.deck.run = RunId(id or agent.name)
        return await client.start(agent, input, id=self.deck.run, **more)

    def worker(self) -> Worker:
        return self.deck.worker(self.world, Token(), build="recorded")

    async def until_still(self, *, whose: Worker | None = None) -> RunRow:
        """Drive it until it waits, whatever it waits for."""
        await self.deck.settle(whose or self.worker())
        return await self.deck.row()

    async def take(self, name: str = "", *, run: str = "") -> None:
        """Write a run down as it is."""
        run = run or self.deck.run
        lines = [line.encode() async for line in bundle_of(self.deck.store, DEFAULT_TENANT, run, with_key=True)]
        self.taken[name or run] = lines

    async def take_live(self, name: str = "") -> None:
        await self.take(f"live/{name or self.deck.run}")

    async def take_end(self, person: Person | None = None) -> None:
        """Drive it to its end, and write it down."""
        row = await self.deck.play(self.worker(), person)
        assert row.ended, f"{row.id} is {row.status}: {row.reason}, {row.detail}"
        await self.take()

    def control(self) -> Control:
        return Control(self.deck.store, self.deck.clock, Owner("person"))

    async def resolve(self, decision: decide.Word, outcome: str | None = None) -> None:
        """Decide about what is in doubt, or held."""
        [one] = [
            one for one in await self.deck.store.operations(DEFAULT_TENANT, self.deck.run)
            if one.status in ("unknown", "held")
        ]  # fmt: skip
        self.deck.clock.advance(timedelta(minutes=5))
        await decide.resolve(
            self.control(), app.registry, DEFAULT_TENANT, self.deck.run, one.id, decision, who="ada",
            why="looked at it", outcome=outcome,
        )  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """Something that happens, and under which names it gives runs."""

    name: str
    happens: Happens
    gives: tuple[str, ...]


def _played(agent: Agent[Any, Any], person: Person | None) -> Scene:
    """One undisturbed run."""

    async def happens(stage: Stage) -> None:
        Release.new = agent.name != "adopted"
        await stage.start(agent)
        await stage.deck.play(stage.worker(), person)
        await stage.take()

    return Scene(agent.name, happens, (agent.name,))


SCENES: list[Scene] = [_played(agent, person) for agent, person in RECORDED]


def scene(*gives: str) -> Callable[[Happens], Happens]:
    def added(happens: Happens) -> Happens:
        SCENES.append(Scene(happens.__name__, happens, gives))
        return happens

    return added


# ---- workers that die, and a database that has lost something


@scene("live/in_flight", "looked_up_in_vain")
async def dies_in_a_call(stage: Stage) -> None:
    """Its worker dies before the other side has acted: a look-up says so, and it is sent again."""
    await stage.start(agents.delivers, id="looked_up_in_vain")
    await stage.deck.crash(stage.world, stage.world.hang("inv"))
    await stage.take_live("in_flight")
    await stage.deck.take_over(stage.worker())
    await stage.take_end()


@scene("live/in_doubt", "told_by_evidence", "live/told_to_a_blocked_run")
async def dies_when_it_has_acted(stage: Stage) -> None:
    """Nobody can be asked. The worker that was taken for dead says what its call had answered."""
    await stage.start(agents.dispatches, id="told_by_evidence")
    await stage.deck.crash(stage.world, stage.world.hang("inv"))
    await stage.deck.take_over(stage.worker())
    assert (await stage.deck.row()).reason == "operation in doubt"
    await stage.take_live("in_doubt")
    [one] = [
        one for one in await stage.deck.store.operations(DEFAULT_TENANT, stage.deck.run) if one.status == "unknown"
    ]
    said = {
        "operation": one.id, "attempt": 1, "epoch": 1, "answer": "succeeded", "payload": '"inv#3"', "error": None
    }  # fmt: skip
    message = Message(DEFAULT_TENANT, stage.deck.run, "evidence", f"{one.id}:1", json.dumps(said))
    assert await stage.deck.store.post(message, now=stage.deck.clock.now())
    await stage.take_live("told_to_a_blocked_run")
    await stage.take_end()


def _decided(decision: decide.Word, outcome: str | None) -> None:
    name = f"resolved_as_{decision.replace('-', '_')}"

    async def happens(stage: Stage) -> None:
        await stage.start(agents.dispatches, id=name)
        await stage.deck.crash(stage.world, stage.world.hang("inv"))
        await stage.deck.take_over(stage.worker())
        await stage.resolve(decision, outcome)
        await stage.take_end()

    SCENES.append(Scene(name, happens, (name,)))


_decided("happened", '"by hand"')
_decided("did-not-happen", None)
_decided("abandon", None)


@scene("live/entries_lost", "lost_entries")
async def loses_entries(stage: Stage) -> None:
    """The database is set back in the middle of a turn; what was sent in lost entries is met again."""
    await stage.start(agents.rounds, id="lost_entries")
    kept: list[Backup] = []

    async def falls_behind() -> None:
        kept.append(Backup(stage.deck))

    async def fails_over() -> None:
        await kept[0].restore()

    stage.world.happens |= {"two": falls_behind, "after three": fails_over}
    row = await stage.until_still()
    assert row.reason == "entries lost", row
    await stage.take_live("entries_lost")
    await decide.retry(stage.control(), DEFAULT_TENANT, stage.deck.run, who="ada", why="looked")
    await stage.take_end()


@scene("live/drained_in_a_turn", "drained")
async def is_drained(stage: Stage) -> None:
    """Its worker is told to stop in the middle of a turn."""
    await stage.start(agents.rounds, id="drained")
    worker = stage.worker()

    async def stops() -> None:
        worker.stop()

    stage.world.happens["two"] = stops
    await worker.claim()
    await worker.idle()
    assert (await stage.deck.row()).status == "ready"
    await stage.take_live("drained_in_a_turn")
    await stage.take_end()


@scene("live/in_flight_in_a_turn", "taken_over_in_a_turn")
async def dies_in_a_turn(stage: Stage) -> None:
    await stage.start(agents.rounds, id="taken_over_in_a_turn")
    await stage.deck.crash(stage.world, stage.world.hang("two"))
    await stage.take_live("in_flight_in_a_turn")
    await stage.deck.take_over(stage.worker())
    await stage.take_end()


@scene("live/saved_before", "saves")
async def saves_in_another_release(stage: Stage) -> None:
    """A rule of the new release makes the state of the loop new."""
    app.registry.agents["saves"] = before.saves
    try:
        await stage.start(before.saves)
        assert (await stage.until_still()).status == "waiting"
    finally:
        app.registry.agents["saves"] = agents.saves
    await stage.take_live("saved_before")
    await stage.take_end()


# ---- forks


@scene("forked_from", "fork_that_reuses", "fork_that_repeats", "fork_that_acts_again", "live/held")
async def forks(stage: Stage) -> None:
    """Forks meet what their parent has done: a person lets it count, or lets it be done again; one asks nobody."""
    handle = await stage.start(agents.dispatches, id="forked_from")
    await stage.take_end()
    at = next(one.seq for one in await stage.deck.log() if one.kind == "step")
    for name, decision in (
        ("fork_that_reuses", "reuse"),
        ("fork_that_repeats", "repeat"),
        ("fork_that_acts_again", ""),
    ):
        await handle.fork(who="ada", why="it went wrong", at=at, id=name, repeat_effects=not decision)
        stage.deck.run = RunId(name)
        worker = stage.worker()
        while not (row := await stage.deck.play(worker)).ended:
            assert row.status == "blocked" and decision, row
            if "live/held" not in stage.taken:
                await stage.take_live("held")
            await stage.resolve(cast(decide.Word, decision))
        await stage.take()


# ---- people


@scene("live/paused", "live/napping", "paused_and_resumed")
async def is_paused(stage: Stage) -> None:
    handle = await stage.start(agents.naps, id="paused_and_resumed")
    await stage.until_still()
    await stage.take_live("napping")
    assert await handle.pause(who="ada", why="a moment") == "paused"
    await stage.take_live("paused")
    stage.deck.clock.advance(timedelta(days=3))
    await handle.resume(who="ada", why="go on")
    await stage.deck.play(stage.worker())
    assert await handle.cancel(who="bob", why="not needed") == "too late"
    await stage.take()


@scene("live/cleaning_up", "cancelled_too_often")
async def is_cancelled_too_often(stage: Stage) -> None:
    """While it cleans up, somebody else asks for it too."""
    await stage.start(agents.naps, id="cancelled_too_often")
    await stage.until_still()
    for who in ("ada", "bob"):
        body = written(Request("cancel", who, "not needed", 3_600_000))
        await stage.deck.store.post(
            Message(DEFAULT_TENANT, stage.deck.run, inbox.CONTROL, who, body), now=stage.deck.clock.now()
        )
        await stage.until_still()
    assert [one.kind for one in await stage.deck.log()][-1] == "suspended"
    await stage.take_live("cleaning_up")
    row = await stage.deck.play(stage.worker())
    assert row.status == "cancelled", row
    await stage.take()


@scene("live/has_little_time", "expired")
async def is_late(stage: Stage) -> None:
    """Its deadline passes while it waits: it cleans up."""
    await stage.start(
        agents.naps, id="expired", deadline=timedelta(hours=3), labels={"customer": "anna"}, principal="ada",
        purpose="dunning", priority=3,
    )  # fmt: skip
    await stage.until_still()
    await stage.take_live("has_little_time")
    row = await stage.deck.play(stage.worker())
    assert row.status == "expired", row
    await stage.take()


@scene("carries_much")
async def carries_much(stage: Stage) -> None:
    """Payloads that stand beside the log."""
    await stage.start(agents.carries_much)
    await stage.take_end()
    assert any(one.blob is not None for one in await stage.deck.log())


@scene("terminated")
async def is_terminated(stage: Stage) -> None:
    """With an operation in doubt."""
    handle = await stage.start(agents.dispatches, id="terminated")
    await stage.deck.crash(stage.world, stage.world.hang("inv"))
    await stage.deck.take_over(stage.worker())
    await handle.terminate(who="ada", why="enough of it")
    await stage.take()


@scene("live/waits_for_approval", "live/approved_and_not_sent", "reminded_and_escalated")
async def is_reminded(stage: Stage) -> None:
    """Nobody decides in time; others are asked, and agree."""
    await stage.start(agents.buys, id="reminded_and_escalated")
    worker = stage.worker()
    await stage.until_still(whose=worker)
    await stage.take_live("waits_for_approval")
    for hours in (7, 18):
        stage.deck.clock.advance(timedelta(hours=hours))
        await stage.deck.settle(worker)
    approvals = Approvals(lambda: stage.deck.store, stage.deck.clock, app.registry, None)
    [one] = await approvals.list()
    assert one.role == "board"
    await approvals.approve(one.id, who="eve", role="board", why="it is fine")
    await stage.take_live("approved_and_not_sent")
    await stage.take_end()


@scene("regrets", "regrets-rollback", "live/rolling_back")
async def is_rolled_back(stage: Stage) -> None:
    """Its failure undoes it; a worker dies while it does."""
    await stage.start(agents.regrets)
    await stage.deck.crash(stage.world, stage.world.hang("refund"))
    row = await stage.deck.row()
    assert row.status == "failed", row
    stage.deck.run = RunId("regrets-rollback")
    await stage.take_live("rolling_back")
    await stage.deck.take_over(stage.worker())
    await stage.take_end()
    await stage.take(run="regrets")


# ---- messages, answers, outcomes that come later, and the keys of others


@scene("live/waits_for_a_message", "receives")
async def is_written_to(stage: Stage) -> None:
    """Before it waits, while it does, twice the same, and on a topic that it never reads."""
    handle = await stage.start(letters.receives)
    await handle.send("orders", "first", key="1")
    await handle.send("orders", "first", key="1")
    await handle.send("gossip", "unread", key="1")
    await stage.until_still()
    await stage.take_live("waits_for_a_message")
    await handle.send("orders", "second", key="2")
    await stage.until_still()
    await handle.send("orders", "third", key="3")
    await stage.take_end()


@scene("live/waits_in_a_turn", "converses")
async def is_written_to_in_turns(stage: Stage) -> None:
    """What one turn has not received goes on into the next."""
    handle = await stage.start(letters.converses)
    await handle.send("orders", "one", key="1")
    await handle.send("orders", "two", key="2")
    await stage.until_still()
    await stage.take_live("waits_in_a_turn")
    await handle.send("orders", "three", key="3")
    await stage.take_end()


@scene("live/waits_for_answers", "live/answered_once", "asks")
async def is_answered(stage: Stage) -> None:
    handle = await stage.start(letters.asks)
    await stage.until_still()
    await stage.take_live("waits_for_answers")
    how_many, whom = await mail.questions(stage.deck.store, DEFAULT_TENANT, stage.deck.run)
    await handle.answer(whom.id, "bob", who="clerk")
    await stage.until_still()
    await stage.take_live("answered_once")
    await handle.answer(how_many.id, 3, who="owner")
    await handle.send("orders", letters.Order(what="a book", count=3), key="1")
    await stage.take_end()


@scene("live/has_its_outcome_later")
async def orders_something(stage: Stage) -> None:
    await stage.start(later_scenes.orders, id="has_its_outcome_later")
    await stage.until_still()
    assert any(one.kind == "later" for one in await stage.deck.log())
    await stage.take_live()


@scene("live/waits_for_a_key")
async def meets_another_run(stage: Stage) -> None:
    """The other one has its order under way with the same business key."""
    await stage.start(keys.beside, id="ahead")
    await stage.until_still()
    await stage.start(keys.beside, id="waits_for_a_key")
    await stage.until_still()
    await stage.take_live()


@scene("has_it_from_another_run")
async def shares(stage: Stage) -> None:
    """Another run has done it: nothing is sent."""
    await stage.start(keys.charges, id="ahead")
    await stage.deck.play(stage.worker())
    await stage.start(keys.charges, id="has_it_from_another_run")
    await stage.take_end()


@scene("live/sends_again_next_month")
async def puts_it_off(stage: Stage) -> None:
    """An attempt is known not to have acted, and the next one is far away."""
    await stage.start(agents.puts_off, id="sends_again_next_month")
    await stage.until_still()
    await stage.take_live()


@scene("live/diverged")
async def is_changed(stage: Stage) -> None:
    """A release that asks for other steps than the one before."""
    Release.new = False
    await stage.start(adopted, id="diverged")
    await stage.until_still()
    Release.new = True
    stage.deck.clock.advance(timedelta(days=2))
    row = await stage.until_still()
    assert row.reason == "diverged", row
    await stage.take_live()


# ---- other harnesses. Checkpoints of LangGraph, transcripts of the Claude Agent SDK and tasks of A2A servers stand
# beside runs and write no entry: there is nothing of them here.


def _of_framework(agent: Agent[Any, Any]) -> None:
    name = f"live/{agent.name}_waits_for_approval"

    async def happens(stage: Stage) -> None:
        await stage.start(agent, id=f"{agent.name}_waits_for_approval")
        await stage.until_still()
        assert any(one.kind == "proposed" for one in await stage.deck.log())
        await stage.take(name)

    SCENES.append(Scene(f"{agent.name}_waits", happens, (name,)))


for _agent in FRAMEWORKS:
    if _agent.name in ("of_sdk", "of_pydantic"):
        _of_framework(_agent)


@scene("asks_a_server", "live/in_flight_at_a_server")
async def asks_a_server(stage: Stage) -> None:
    """A server of its own over stdio, which answers, fails, and dies amid a call."""
    with TemporaryDirectory() as directory:
        place = Path(directory)
        agents.desk._at = at(place)
        asked = [
            ("search", {"query": "late"}), ("label", {"invoice": "I"}), ("refund", {"invoice": "I", "cents": 5}),
            ("refuse", {"why": "it is closed"}), ("picture", {"size": 1}),
        ]  # fmt: skip
        async with agents.desk.connected():
            await stage.start(agents.asks_a_server, asked)
            await stage.take_end()
            (place / "die").touch()
            await stage.start(
                agents.asks_a_server, [("refund", {"invoice": "II", "cents": 6})], id="in_flight_at_a_server"
            )
            row = await stage.until_still()
            assert row.status in ("waiting", "blocked"), row
            await stage.take_live()


@scene("graph_bills", "graph_counts", "graph_is_declined", "graph_pays", "live/graph_waits_for_approval")
async def graph(stage: Stage) -> None:
    """A graph of LangGraph with a checkpointer, whose tool calls are runs."""
    await graphs.invoke(stage)
