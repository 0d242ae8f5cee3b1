"""Somebody is told, on both stores and by real HTTP: nothing is lost, nothing is doubled by its id, runs keep order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from outlive.duty.letter import line
from outlive.duty.rota import Rotation, Shift
from outlive.duty.route import Route
from outlive.duty.stalls import StallsDuty
from outlive.duty.telling import AT_ONCE, MOST_FAILURES, PATIENCE, DeadlinesDuty, Sender, TellingDuty
from outlive.errors import SecretMissing
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.notice import Notice, NoticeKind, Notification
from outlive.secret.scrubber import Scrubber
from outlive.store.port import Message, Stalled, WorkerRow
from outlive.store.telling import Told
from outlive.testing.store_scene import ANNA, BORIS, LEASE, Scene, event
from tests.duty.ground import Unhurried, kept
from tests.duty.receiver import SECRET, Receiver, genuine, receiving, says


class Planted:
    """One secret, which can be taken away."""

    def __init__(self) -> None:
        self.value: str | None = SECRET

    def get(self, name: str) -> str | None:
        return self.value if name == "notify/ops" else None

    def names(self) -> list[str]:
        return []

    def describe(self, name: str) -> str:
        return f"nothing named {name}"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


def route(receiver: Receiver, name: str = "ops", *, within_s: float = 60) -> Route:
    return Route(name, url=receiver.url, secret="notify/ops", timeout=timedelta(seconds=within_s))


def duty(scene: Scene, *routes: Route, secrets: Planted | None = None) -> TellingDuty:
    sender = Sender(scene.clock, secrets or Planted(), Scrubber())
    # Nobody moves the clock while one route waits for another: such a wait takes no time.
    return TellingDuty(kept(scene), routes, sender, Unhurried())


def shift(scene: Scene) -> Shift:
    return Shift(kept(scene), scene.clock, "telling", "token")


async def tell(scene: Scene, run: str, *seqs: int, role: str = "") -> list[str]:
    """Notifications of a run that is there or is started; their ids."""
    if await scene.store.run(DEFAULT_TENANT, RunId(run)) is None:
        await scene.start(run)
    for seq in seqs:
        notice = Notice("blocked", f"{run}-{seq}", seq, role, {"reason": "poison", "detail": f"{seq} é"})
        assert await kept(scene).tell(DEFAULT_TENANT, RunId(run), notice, now=scene.now)
    return [f"{run}-{seq}" for seq in seqs]


async def told(scene: Scene) -> dict[str, Told]:
    found = await kept(scene).notifications(DEFAULT_TENANT, undelivered=False, limit=20_000)
    return {one.notification.id: one for one in found}


async def work(scene: Scene, telling: TellingDuty) -> float | None:
    return (await telling.work(shift(scene))).due_s


async def work_for(scene: Scene, telling: TellingDuty, span: timedelta) -> int:
    """Let time pass, with a shift whenever the duty says that it is due; how many shifts that were."""
    until, shifts = scene.now + span / timedelta(milliseconds=1), 0
    while scene.now < until:
        due_s = await work(scene, telling)
        shifts += 1
        scene.advance(seconds=min(due_s or 600, 600))
    return shifts


async def test_a_receiver_gets_what_it_can_verify(scene: Scene, receiver: Receiver) -> None:
    await tell(scene, "r", 4)
    telling = duty(scene, route(receiver))
    assert await work(scene, telling) is None
    [request] = receiver.got
    assert request.path == "/hook?from=outlive"
    assert genuine(request.headers, request.body, scene.now // 1000)
    assert not genuine(request.headers, request.body + b" ", scene.now // 1000)
    assert not genuine({**request.headers, "outlive-id": "other"}, request.body, scene.now // 1000)
    assert not genuine(request.headers, request.body, scene.now // 1000 + 301)
    assert not genuine(request.headers, request.body, scene.now // 1000, secret="another")
    assert request.told == {
        "id": "r-4", "kind": "blocked", "tenant": "default", "run": "r", "agent": "clerk", "seq": 4, "role": "",
        "at": "2025-06-15T15:06:40.000+00:00", "facts": {"reason": "poison", "detail": "4 é"},
        "text": "run r (clerk) is blocked: poison: 4 é; see: outlive show r",
    }  # fmt: skip
    [way] = (await told(scene))["r-4"].deliveries
    assert (way.route, way.attempts, way.delivered_at, way.error) == ("ops", 1, scene.now, "")
    await work(scene, telling)
    assert len(receiver.got) == 1


async def test_nothing_is_lost_or_doubled_when_the_receiver_is_down_for_an_hour(
    scene: Scene, receiver: Receiver
) -> None:
    receiver.answer = says("503 Service Unavailable")
    telling, ids = duty(scene, route(receiver)), list[str]()
    for minute in range(60):
        ids += await tell(scene, f"r{minute % 7}", minute)
        await work_for(scene, telling, timedelta(minutes=1))
    assert receiver.accepted == []
    assert len(receiver.got) < 500
    receiver.answer = says("200 OK")
    await work_for(scene, telling, timedelta(minutes=30))
    assert receiver.ids() == dict.fromkeys(ids, 1)
    for run in range(7):
        seqs = [one.told["seq"] for one in receiver.accepted if one.told["run"] == f"r{run}"]
        assert seqs == sorted(seqs)
    assert all(genuine(one.headers, one.body, int(one.headers["outlive-timestamp"])) for one in receiver.got)


async def test_who_dies_between_the_answer_and_its_record_is_followed_with_the_same_id(
    scene: Scene, receiver: Receiver
) -> None:
    await tell(scene, "r", 1, 2)
    held = asyncio.Event()

    class Dying:
        """The store of a worker that dies when it is about to record."""

        def __getattr__(self, name: str) -> object:
            return self._never if name == "delivered" else getattr(kept(scene), name)

        async def _never(self, *_: object) -> None:
            held.set()
            await asyncio.Event().wait()

    first = duty(scene, route(receiver))
    first._store = Dying()  # type: ignore[assignment] # stands for a process that is gone
    rota = Rotation(kept(scene), scene.clock, ANNA, [first])
    await rota.begin()
    working = asyncio.ensure_future(rota.serve(("telling",)))
    await held.wait()
    working.cancel()
    await asyncio.wait([working])
    second = Rotation(kept(scene), scene.clock, BORIS, [duty(scene, route(receiver))])
    await second.serve(("telling",))
    assert [one.id for one in receiver.accepted] == ["r-1"]
    scene.advance(seconds=60)
    assert (await scene.look()).duties == ("telling",)
    await second.serve(("telling",))
    assert [one.id for one in receiver.accepted] == ["r-1", "r-1", "r-2"]
    assert receiver.accepted[0].body == receiver.accepted[1].body


@pytest.mark.parametrize(
    ("answer", "says_so"),
    [
        (says("404 Not Found", body="no such hook"), "404 Not Found no such hook"),
        (says("500 Oops"), "500 Oops"),
        (says("302 Found", "Location: http://127.0.0.1:9/\r\n"), "302 Found: redirects are not followed"),
        (lambda _: b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP/1.1"),
        (lambda _: b"HTTP/1.1 200", "IncompleteReadError"),
        (lambda _: b"", "IncompleteReadError"),
        (lambda _: b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000, "LimitOverrunError"),
    ],
)
async def test_what_is_no_success_is_tried_again(
    scene: Scene, receiver: Receiver, answer: object, says_so: str
) -> None:
    await tell(scene, "r", 1)
    receiver.answer = answer  # type: ignore[assignment] # one of the above
    telling = duty(scene, route(receiver))
    due_s = await work(scene, telling)
    [way] = (await told(scene))["r-1"].deliveries
    assert says_so in way.error
    assert (way.attempts, way.failing_since) == (1, scene.now)
    assert due_s is not None
    assert 0.4 < due_s <= 1
    receiver.answer = says("200 OK")
    scene.advance(seconds=due_s)
    await work(scene, telling)
    assert (await told(scene))["r-1"].deliveries[0].delivered_at == scene.now
    assert [one.id for one in receiver.got] == ["r-1", "r-1"]


async def test_a_time_out_is_tried_again(scene: Scene, receiver: Receiver) -> None:
    await tell(scene, "r", 1)
    receiver.answer = lambda _: None
    telling = duty(scene, route(receiver, within_s=0.2))
    await work(scene, telling)
    assert (await told(scene))["r-1"].deliveries[0].error == "no answer within 0.2 s"


@pytest.mark.parametrize("given", ["120", "Sun, 15 Jun 2025 15:08:40 GMT"])
async def test_a_receiver_that_asks_for_time_is_given_it(scene: Scene, receiver: Receiver, given: str) -> None:
    await tell(scene, "r", 1)
    receiver.answer = says("429 Too Many Requests", f"Retry-After: {given}\r\n")
    telling = duty(scene, route(receiver))
    assert await work(scene, telling) == 120
    scene.advance(seconds=119)
    await work(scene, telling)
    assert len(receiver.got) == 1
    scene.advance(seconds=1)
    await work(scene, telling)
    assert len(receiver.got) == 2


async def test_a_slow_receiver_holds_up_no_other(scene: Scene, receiver: Receiver) -> None:
    async with receiving() as slow:
        slow.answer = lambda _: None
        await tell(scene, "r", 1, 2, 3)
        telling = duty(scene, route(slow, "slow"), route(receiver, "quick"))
        rota = Rotation(kept(scene), scene.clock, ANNA, [telling])
        await rota.begin()
        working = asyncio.ensure_future(rota.serve(("telling",)))
        while len(receiver.accepted) < 3:
            await asyncio.to_thread(lambda: None)
        await tell(scene, "other", 1)
        while len(receiver.accepted) < 4:
            scene.advance(seconds=1)
            await asyncio.to_thread(lambda: None)
        assert not working.done()
        assert len(slow.got) <= 2
        working.cancel()
        await asyncio.wait([working])


async def test_a_route_that_fails_again_and_again_is_left_alone_for_a_while(scene: Scene, receiver: Receiver) -> None:
    receiver.answer = says("500 Oops")
    for number in range(50):
        await tell(scene, f"r{number}", 1)
    telling = duty(scene, route(receiver))
    due_s = await work(scene, telling)
    assert MOST_FAILURES <= len(receiver.got) <= MOST_FAILURES + AT_ONCE
    assert receiver.most_at_once <= AT_ONCE
    before = len(receiver.got)
    await work(scene, telling)
    assert len(receiver.got) == before
    scene.advance(seconds=(due_s or 0) + 0.01)
    await work(scene, telling)
    assert before < len(receiver.got) <= before + 2


async def test_after_a_week_a_delivery_is_given_up(scene: Scene, receiver: Receiver) -> None:
    receiver.answer = says("410 Gone")
    await tell(scene, "r", 1, 2)
    telling = duty(scene, route(receiver))
    await work(scene, telling)
    scene.advance(seconds=(PATIENCE - timedelta(hours=1)).total_seconds())
    await work(scene, telling)
    assert [one.deliveries[0].given_up_at for one in (await told(scene)).values()] == [None, None]
    await work_for(scene, telling, timedelta(hours=2))
    given_up = [one.deliveries[0] for one in (await told(scene)).values()]
    assert all(one.given_up_at and one.error == "410 Gone" for one in given_up)
    assert await work(scene, telling) is None


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
async def test_a_backlog_is_worked_off_in_the_order_of_each_run(scene: Scene, receiver: Receiver, count: int) -> None:
    for number in range(count):
        await tell(scene, f"r{number % 3}", number)
    await work(scene, duty(scene, route(receiver)))
    assert receiver.ids() == {f"r{number % 3}-{number}": 1 for number in range(count)}
    for run in range(3):
        seqs = [one.told["seq"] for one in receiver.accepted if one.told["run"] == f"r{run}"]
        assert seqs == list(range(run, count, 3))


async def test_what_failed_is_not_overtaken_by_what_comes_after_it_in_its_run(scene: Scene, receiver: Receiver) -> None:
    await tell(scene, "r", 1, 2)
    await tell(scene, "other", 1)
    first = iter([b"HTTP/1.1 500 Oops\r\n\r\n"])
    ok = says("200 OK")
    receiver.answer = lambda request: next(first, ok(request)) if request.id == "r-1" else ok(request)
    telling = duty(scene, route(receiver))
    due_s = await work(scene, telling)
    assert [one.id for one in receiver.accepted] == ["other-1"]
    scene.advance(seconds=(due_s or 0) + 0.01)
    await work(scene, telling)
    assert [one.id for one in receiver.accepted] == ["other-1", "r-1", "r-2"]


async def test_what_was_answered_while_it_was_on_its_way_is_not_told(scene: Scene, receiver: Receiver) -> None:
    await scene.start("r")
    for seq, kind in ((1, "question"), (2, "approval"), (3, "blocked")):
        facts = {"question_id": "answer:ask", "approval": "ap-1"}
        notice = Notice(cast(NoticeKind, kind), kind, seq, facts=facts)
        assert await kept(scene).tell(DEFAULT_TENANT, RunId("r"), notice, now=scene.now)
    receiver.answer = says("503 Service Unavailable")
    telling = duty(scene, route(receiver))
    due_s = await work(scene, telling)
    assert [one.id for one in receiver.got] == ["question"]
    await scene.store.post(Message(DEFAULT_TENANT, RunId("r"), "mail:answer:ask", "ada", "true"), now=scene.now)
    receiver.answer = says("200 OK")
    scene.advance(seconds=(due_s or 0) + 0.01)
    assert "left 1 out" in (await telling.work(shift(scene))).report
    assert [one.id for one in receiver.accepted] == ["approval", "blocked"]
    [way] = (await told(scene))["question"].deliveries
    assert (way.attempts, way.delivered_at, way.error) == (1, None, "nobody has to answer it any more")


async def test_a_notification_goes_over_the_routes_of_its_kind_and_role(scene: Scene, receiver: Receiver) -> None:
    await tell(scene, "all", 1)
    await tell(scene, "ops", 1, role="ops")
    await tell(scene, "tax", 1, role="tax")
    routes = [
        replace(route(receiver, "for-ops"), roles=("ops",)),
        replace(route(receiver, "other-kinds"), kinds=("question",)),
    ]
    await work(scene, duty(scene, *routes))
    ways = {id: [way.route for way in one.deliveries] for id, one in (await told(scene)).items()}
    assert ways == {"all-1": ["for-ops"], "ops-1": ["for-ops"], "tax-1": []}
    assert (await kept(scene).untold()).count == 1
    await work(scene, duty(scene, *routes, route(receiver, "late")))
    assert sorted(one.told["run"] for one in receiver.accepted) == ["all", "ops", "tax"]
    assert (await kept(scene).untold()).count == 0


async def test_what_is_new_makes_the_duty_due_and_what_nobody_takes_does_not(scene: Scene, receiver: Receiver) -> None:
    rota = Rotation(kept(scene), scene.clock, ANNA, [duty(scene, replace(route(receiver), roles=("ops",)))])
    await rota.begin()
    await rota.serve(("telling",))
    assert (await scene.look()).duties == ()
    await tell(scene, "r", 1, role="tax")
    assert (await scene.look()).duties == ("telling",)
    await rota.serve(("telling",))
    assert (await scene.look()).duties == ()
    assert receiver.got == []


async def test_a_secret_that_is_missing_is_told_of_and_one_that_leaks_is_not(scene: Scene, receiver: Receiver) -> None:
    await tell(scene, "r", 1)
    secrets = Planted()
    secrets.value = None
    telling = duty(scene, route(receiver), secrets=secrets)
    await work(scene, telling)
    missing = str(SecretMissing(name="notify/ops", tried="nothing named notify/ops"))
    assert (await told(scene))["r-1"].deliveries[0].error == missing
    assert receiver.got == []
    secrets.value = SECRET
    receiver.answer = says("403 Forbidden", body=f"not {SECRET}")
    scene.advance(minutes=1)
    await work(scene, telling)
    assert (await told(scene))["r-1"].deliveries[0].error == "403 Forbidden not [secret notify/ops]"


async def test_nobody_listening_is_a_failure(scene: Scene) -> None:
    await tell(scene, "r", 1)
    await work(scene, duty(scene, Route("ops", url="http://127.0.0.1:9/")))
    assert "ConnectionRefusedError" in (await told(scene))["r-1"].deliveries[0].error


WRITES = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"


async def test_a_command_gets_it_on_its_stdin(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("told") / "letter.json"
    await tell(scene, "r", 1)
    await work(scene, duty(scene, Route("mail", command=(sys.executable, "-c", WRITES, str(place)))))
    assert '"id":"r-1"' in place.read_text("utf-8")
    assert (await told(scene))["r-1"].deliveries[0].delivered_at == scene.now


@pytest.mark.parametrize(
    ("command", "says_so"),
    [
        ((sys.executable, "-c", "import sys; print('no mail today'); sys.exit(3)"), "exit code 3 no mail today"),
        (("/nowhere/at-all",), "it cannot be started: "),
        (
            (sys.executable, "-c", "import sys; sys.stdin.close(); print('x' * 10_000_000); sys.exit(1)"),
            "exit code 1 x",
        ),
    ],
)
async def test_a_command_that_fails_is_tried_again(scene: Scene, command: tuple[str, ...], says_so: str) -> None:
    await tell(scene, "r", 1)
    await work(scene, duty(scene, Route("mail", command=command)))
    error = (await told(scene))["r-1"].deliveries[0].error
    assert error.startswith(says_so)
    assert len(error) <= 300


async def test_a_command_past_its_time_is_ended_with_what_it_started(scene: Scene) -> None:
    await tell(scene, "r", 1)
    sleeper = "import os, signal; os.fork(); signal.pause()"
    route = Route("mail", command=(sys.executable, "-c", sleeper), timeout=timedelta(seconds=0.5))
    await work(scene, duty(scene, route))
    assert (await told(scene))["r-1"].deliveries[0].error == "it did not end within 0.5 s"


async def test_a_deadline_that_is_near_is_told_of_once(scene: Scene) -> None:
    await scene.start("late", deadline_ms=3_600_000)
    deadlines = DeadlinesDuty(kept(scene), timedelta(hours=1), scene.clock)
    done = await deadlines.work(shift(scene))
    assert (done.report, done.due_s) == ("told of 0 deadlines", 60)
    scene.advance(minutes=54)
    for count in (1, 0):
        assert (await deadlines.work(shift(scene))).report == f"told of {count} deadlines"
    [one] = (await told(scene)).values()
    notification: Notification = one.notification
    assert (notification.kind, notification.facts["left_s"], notification.facts["status"]) == (
        "deadline near",
        360,
        "ready",
    )
    scene.advance(minutes=6)
    assert (await deadlines.work(shift(scene))).report == "told of 0 deadlines"


async def test_a_stalled_worker_is_told_of_once_by_another(scene: Scene) -> None:
    hold = await scene.hold("stuck")
    worker = WorkerRow(ANNA, 7, {"clerk": "b1"}, scene.now, scene.now)
    await scene.store.announce(worker, now=scene.now)
    scene.store.renew(ANNA, [hold.authority], LEASE, stalled=Stalled(40_000, "stuck"), now=scene.now)
    stalls = StallsDuty(kept(scene), scene.clock)
    for count in (1, 0):
        assert (await stalls.work(shift(scene))).report == f"told of {count} stalled runs"
    [one] = (await told(scene)).values()
    assert line(one.notification) == (
        "run stuck (clerk) stands still: the event loop of anna (pid 7) has not turned for 40 s, this run blocks it;"
        " see: outlive show stuck"
    )
    scene.store.renew(ANNA, [hold.authority], LEASE, stalled=Stalled(50_000), now=scene.now)
    await scene.append(hold, event())
    assert (await stalls.work(shift(scene))).report == "told of 1 stalled runs"
    assert "one of its 1 runs blocks it" in line(list((await told(scene)).values())[0].notification)


@pytest.mark.parametrize("dead", ["answers 500", pytest.param("does not answer", marks=pytest.mark.long)])
async def test_a_receiver_that_is_dead_for_a_thousand_costs_little_and_starves_nobody(
    scene: Scene, receiver: Receiver, dead: str
) -> None:
    """Another route has all of them at once; the dead one is asked a few times in each pass, and in the end has all."""
    ids = [id for run in range(20) for id in await tell(scene, f"r{run}", *range(50))]
    async with receiving() as other:
        other.answer = says("500 Oops") if dead == "answers 500" else lambda _: None
        routes = (route(receiver, "good"), route(other, "dead", within_s=60 if dead == "answers 500" else 0.05))
        telling = duty(scene, *routes)
        await work(scene, telling)
        assert receiver.ids() == dict.fromkeys(ids, 1)
        assert MOST_FAILURES <= len(other.got) <= MOST_FAILURES + AT_ONCE
        for _ in range(30):
            before = len(other.got)
            scene.advance(seconds=min(await work(scene, telling) or 600, 600))
            assert len(other.got) <= before + 2, "one pass asks a dead receiver once or twice"
        await tell(scene, "late", 1)
        await work(scene, telling)
        assert receiver.ids()["late-1"] == 1
        other.answer = says("200 OK")
        await work_for(scene, telling, timedelta(minutes=40))
        assert other.ids() == dict.fromkeys([*ids, "late-1"], 1)
        assert len(receiver.accepted) == len(ids) + 1
