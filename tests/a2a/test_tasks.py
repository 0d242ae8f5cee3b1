"""Runs as tasks of an A2A server: saved, read from another process's point of view, listed, and kept apart by owner."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from a2a.auth.user import User
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError

from outlive import Agent, Operation, Outlive, Run
from outlive.a2a import RunTaskStore
from outlive.approvals import Approval
from tests.mcp.waiting import until

app: Outlive[None] = Outlive()


@app.tool()
async def pay(op: Operation[None], cents: int) -> str:
    raise ConnectionError("the answer was lost")


@app.tool(approval=Approval(role="finance"))
async def transfer(op: Operation[None], cents: int) -> str:
    return "done"


@app.agent()
async def greet(run: Run[None], name: str) -> str:
    return f"hello {name}"


@app.agent()
async def count(run: Run[None], numbers: dict[str, int]) -> dict[str, int]:
    return {"sum": sum(numbers.values())}


@app.agent()
async def buy(run: Run[None], cents: int) -> str:
    return await run.call(pay, cents)


@app.agent()
async def send(run: Run[None], cents: int) -> str:
    return await run.call(transfer, cents)


@app.agent()
async def fails(run: Run[None], name: str) -> str:
    raise ValueError(f"no {name}")


class Named(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


def by(name: str) -> ServerCallContext:
    return ServerCallContext(user=Named(name))


@pytest.fixture(params=["sqlite", "postgres"])
async def tasks(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunTaskStore]:
    url = f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else request.getfixturevalue("postgres")
    app._url = url
    async with app:
        yield RunTaskStore(app)


def new(
    id: str, agent: str, text: str, *, context: str = "c", state: TaskState = TaskState.TASK_STATE_SUBMITTED
) -> Task:
    asked = Message(message_id="m", role=Role.ROLE_USER, parts=[Part(text=text)])
    task = Task(id=id, context_id=context, status=TaskStatus(state=state), history=[asked])
    task.metadata["agent"] = agent
    return task


async def get(tasks: RunTaskStore, id: str, who: str = "ada") -> Task:
    found = await tasks.get(id, by(who))
    assert found is not None
    return found


async def ends(agent: Agent[Any, Any], id: str) -> None:
    async for event in app.handle(agent, id).events():
        if event.name in ("run.ended", "run.blocked", "run.asked"):
            return


async def test_a_task_is_its_run(tasks: RunTaskStore) -> None:
    await tasks.save(new("t1", "greet", "Bo"), by("ada"))
    saved = await get(tasks, "t1")
    assert (saved.status.state, saved.context_id) == (TaskState.TASK_STATE_SUBMITTED, "c")
    assert saved.history[0].parts[0].text == "Bo"
    async with app.worker():
        await ends(greet, "t1")
    done = await get(tasks, "t1")
    assert done.status.state == TaskState.TASK_STATE_COMPLETED
    assert done.artifacts[0].parts[0].text == "hello Bo"
    await tasks.save(new("t1", "greet", "Eve", state=TaskState.TASK_STATE_FAILED), by("ada"))
    assert (await get(tasks, "t1")).status.state == TaskState.TASK_STATE_COMPLETED


async def test_data_goes_in_and_comes_out(tasks: RunTaskStore) -> None:
    task = new("t1", "count", "")
    task.history[0].parts[0].data.struct_value.update({"a": 1, "b": 2})
    await tasks.save(task, by("ada"))
    async with app.worker():
        await ends(count, "t1")
    assert (await get(tasks, "t1")).artifacts[0].parts[0].data.struct_value["sum"] == 3


NESTED: Any = "deep"
for _ in range(200):
    NESTED = [NESTED]
ODD = {"large": {"id": 2**53 + 1}, "huge": 10**400, "nested": NESTED}


@app.agent()
async def odd(run: Run[None], name: str) -> Any:
    return ODD[name]


async def test_a_result_that_the_protocol_cannot_hold_is_told_as_json(tasks: RunTaskStore) -> None:
    """A number that is another one would be a lie, and one task that cannot be shown hides all the others."""
    for name in ODD:
        await tasks.save(new(name, "odd", name), by("ada"))
    async with app.worker():
        for name in ODD:
            await ends(odd, name)
    for name, value in ODD.items():
        (part,) = (await get(tasks, name)).artifacts[0].parts
        assert part.media_type == "application/json"
        assert json.loads(part.text) == value
    assert (await tasks.list(ListTasksRequest(), by("ada"))).total_size == len(ODD)


async def asked() -> bool | None:
    return bool(await app.approvals.list()) or None


async def test_what_a_person_has_to_decide_is_never_working(tasks: RunTaskStore) -> None:
    for id, agent in (("t1", "buy"), ("t2", "send"), ("t3", "fails")):
        await tasks.save(new(id, agent, "5"), by("ada"))
    async with app.worker():
        await ends(buy, "t1")
        await ends(fails, "t3")
        await until(asked)
    doubt = await get(tasks, "t1")
    assert doubt.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert "operation in doubt" in doubt.status.message.parts[0].text
    waits = await get(tasks, "t2")
    assert waits.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert "finance: an approval of transfer" in waits.status.message.parts[0].text
    failed = await get(tasks, "t3")
    assert failed.status.state == TaskState.TASK_STATE_FAILED
    assert "ValueError: no 5" in failed.status.message.parts[0].text
    await app.handle(buy, "t1").cancel(who="ada")
    cancelled = await get(tasks, "t1")
    assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
    assert "it is not known whether pay" in cancelled.status.message.parts[0].text


async def test_tasks_of_others_are_not_there(tasks: RunTaskStore) -> None:
    await tasks.save(new("t1", "greet", "Bo"), by("ada"))
    await app.start(greet, "Bo", id="none")
    assert await tasks.get("t1", by("eve")) is None
    assert await tasks.get("none", by("ada")) is None
    assert await tasks.get("nul\0", by("ada")) is None
    with pytest.raises(InvalidParamsError, match="taken"):
        await tasks.save(new("t1", "greet", "Bo"), by("eve"))
    assert (await tasks.list(ListTasksRequest(), by("eve"))).total_size == 0


async def test_tasks_are_listed_in_pages(tasks: RunTaskStore) -> None:
    for number in range(5):
        await tasks.save(new(f"t{number}", "greet", "Bo", context="even" if number % 2 == 0 else "odd"), by("ada"))
    seen: list[str] = []
    token = ""
    while True:
        page = await tasks.list(ListTasksRequest(page_size=2, page_token=token), by("ada"))
        assert page.total_size == 5
        seen += [one.id for one in page.tasks]
        token = page.next_page_token
        if not token:
            break
    assert sorted(seen) == ["t0", "t1", "t2", "t3", "t4"]
    odd = await tasks.list(ListTasksRequest(context_id="odd"), by("ada"))
    assert sorted(one.id for one in odd.tasks) == ["t1", "t3"]
    done = await tasks.list(ListTasksRequest(status=TaskState.TASK_STATE_COMPLETED), by("ada"))
    assert list(done.tasks) == []
    with pytest.raises(InvalidParamsError):
        await tasks.list(ListTasksRequest(page_token="none"), by("ada"))


async def test_what_is_no_new_task_of_an_agent_starts_nothing(tasks: RunTaskStore) -> None:
    nameless, mute = new("t1", "greet", "Bo"), new("t1", "greet", "Bo")
    nameless.ClearField("metadata")
    del mute.history[:]
    wrong = (new("t1", "nobody", "Bo"), new("t1", "buy", "many"), nameless, mute)
    for task in (*wrong, new("t1", "greet", "Bo", state=TaskState.TASK_STATE_WORKING)):
        with pytest.raises(InvalidParamsError):
            await tasks.save(task, by("ada"))
    assert await tasks.get("t1", by("ada")) is None
    with pytest.raises(UnsupportedOperationError):
        await tasks.delete("t1", by("ada"))


class Submits(AgentExecutor):
    """Hands a new task to the store, which starts its run, and leaves."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id and context.message
        task = Task(id=context.task_id, context_id=context.context_id or "", history=[context.message])
        task.status.state = TaskState.TASK_STATE_SUBMITTED
        task.metadata["agent"] = "greet"
        await event_queue.enqueue_event(task)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


async def test_behind_the_request_handler_of_the_sdk(tasks: RunTaskStore) -> None:
    card = AgentCard(name="greeter", capabilities=AgentCapabilities())
    message = Message(message_id="m", role=Role.ROLE_USER, parts=[Part(text="Bo")])
    request = SendMessageRequest(message=message)
    request.configuration.return_immediately = True
    # Closed, for what it leaves behind would fail whichever test it is collected in.
    async with aclosing(DefaultRequestHandler(Submits(), tasks, card)) as handler:
        answer = await handler.on_message_send(request, by("ada"))
    assert isinstance(answer, Task)
    async with app.worker():
        await ends(greet, answer.id)
    seen = await DefaultRequestHandler(Submits(), tasks, card).on_get_task(GetTaskRequest(id=answer.id), by("ada"))
    assert seen is not None and seen.artifacts[0].parts[0].text == "hello Bo"
