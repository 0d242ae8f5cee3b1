"""The plan as the script of a model: an agent calls one tool after the other, in a DBOS workflow."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from dbos import DBOS, DBOSConfig
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

from conformance.adapters import common
from conformance.adapters.dbos import engine as dbos

PLAN = common.plan()
# By default an agent is stopped after fifty answers of its model.
UNLIMITED = UsageLimits(request_limit=None)
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": True}


def script() -> list[list[tuple[str, dict[str, Any]]]]:
    """The calls of each answer of the model, with their ids."""
    found = []
    for number, call in enumerate(PLAN):
        if "turns" in call:
            found += [[(f"c{number}-{turn}", call)] for turn in range(call["turns"])]
        else:
            found.append([(f"c{number}-{branch}", one) for branch, one in enumerate(call.get("all", [call]))])
    return found


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call what has not been called yet; at the end, tell what was done."""
    parts = [part for message in messages for part in message.parts]
    done = {part.tool_call_id: part.content for part in parts if isinstance(part, ToolReturnPart)}
    for answer in script():
        missing = [(id, call) for id, call in answer if id not in done]
        if missing:
            asked = [ToolCallPart(name_of(call), args_of(id, call), tool_call_id=id) for id, call in missing]
            return ModelResponse(asked)
    acts = [(id, call) for answer in script() for id, call in answer if "act" in call and "turns" not in call]
    told = [common.entry(call, done[id]) for id, call in acts]
    return ModelResponse([TextPart(json.dumps(told))])


def name_of(call: dict[str, Any]) -> str:
    return "sleep" if "sleep" in call else str(call["call"])


def args_of(id: str, call: dict[str, Any]) -> dict[str, Any]:
    return {"seconds": call["sleep"]} if "sleep" in call else {"id": id, "args": call["args"]}


def tool_of(call: dict[str, Any]) -> Tool[Any]:
    @DBOS.step(name=call["call"], retries_allowed=True, max_attempts=5, interval_seconds=common.RETRY_S,
               backoff_rate=2.0, should_retry=dbos.repeated)  # fmt: skip
    async def step(run: str, id: str, args: dict[str, Any]) -> str:
        key = f"{run}-{id}" if common.MODE == "keys" else ""
        return await asyncio.to_thread(common.act, run, call["act"], args, key)

    async def perform(id: str, args: dict[str, Any]) -> str:
        return await step(str(DBOS.workflow_id), id, args)

    return made(perform, call["call"], bool(call.get("approval")))


def made(function: Callable[..., Awaitable[Any]], name: str, approval: bool) -> Tool[Any]:
    tool = Tool.from_schema(function, name=name, description=name, json_schema=SCHEMA)
    tool.requires_approval = approval
    return tool


async def sleep(seconds: float) -> str:
    await DBOS.sleep_async(seconds)
    return "slept"


CALLS = {one["call"]: one for call in PLAN for one in call.get("all", [call]) if "act" in one}
agent: Agent[None, Any] = Agent(
    FunctionModel(model),
    name="clerk",
    tools=[made(sleep, "sleep", approval=False), *(tool_of(call) for call in CALLS.values())],
    output_type=[str, DeferredToolRequests],
    capabilities=[DBOSDurability()],
)


@DBOS.workflow(name="agent")
async def follow(run: str) -> list[dict[str, Any]]:
    result = await agent.run("follow the plan", usage_limits=UNLIMITED)
    while isinstance(result.output, DeferredToolRequests):
        [asked] = result.output.approvals
        await DBOS.set_event_async("asks", {"approval": asked.tool_call_id, "args": asked.args_as_dict()["args"]})
        await DBOS.recv_async(asked.tool_call_id, timeout_seconds=3600)
        await DBOS.set_event_async("asks", None)
        agreed = DeferredToolResults(approvals={asked.tool_call_id: True})
        result = await agent.run(
            message_history=result.all_messages(), deferred_tool_results=agreed, usage_limits=UNLIMITED
        )
    found: list[dict[str, Any]] = json.loads(result.output)
    return found


def work() -> None:
    config: DBOSConfig = {
        "name": "conformance",
        "system_database_url": common.STORE,
        "executor_id": common.identity(),
        "application_version": common.BUILD,
        "run_migrations": False,
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(dbos.QUEUE)
    common.ready()
    threading.Event().wait()


def start(run: str) -> None:
    dbos.client().enqueue({"queue_name": dbos.QUEUE, "workflow_name": "agent", "workflow_id": run}, run)


def about() -> dict[str, str]:
    names = ("pydantic-ai-slim", "dbos")
    return {"version": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)}


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work()
    else:
        common.serve(
            {
                "about": about,
                "setup": dbos.setup,
                "start": start,
                "status": dbos.status,
                "history": dbos.history,
                "approvals": dbos.approvals,
                "approve": dbos.approve,
                "size": common.postgres_size,
            }
        )
