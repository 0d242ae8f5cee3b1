"""The plan as an agent: each call is a tool that declares what repeating it would do."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

os.environ["OUTLIVE_BUILD"] = os.environ.get("CONFORMANCE_BUILD", "")

from pydantic import BaseModel

from conformance.adapters import common
from outlive import DidNotHappen, Happened, Operation, Outlive, Retry, Run, Unclear
from outlive.approvals import Approval

app: Outlive[None] = Outlive(common.STORE)
APPROVAL = Approval(role="finance", expires=timedelta(hours=1))


class OutOfStock(Exception):
    """The plan fails here."""


class Turns(BaseModel):
    """How many turns are left."""

    left: int


def send(op: Operation[None], act: str, args: dict[str, Any]) -> str:
    return common.act(op.run_id.removesuffix("-rollback"), act, args, op.key, op.guard)


async def find(op: Operation[None]) -> Happened[str] | DidNotHappen | Unclear:
    receipt = common.acted(op.key)
    return DidNotHappen() if receipt is None else Happened(receipt)


def perform(op: Operation[None], act: str, args: dict[str, Any]) -> str:
    return send(op, act, args)


def undo(op: Operation[None]) -> str:
    """Undoes what `op.original` did; which call that is, the plan says."""
    done = next(call for call in calls(PLAN) if call["call"] == op.original.tool)
    return send(op, done["undo"], done["args"])


def calls(plan: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for call in plan for one in call.get("all", [call]) if "act" in one]


PLAN = common.plan()
DECLARED: dict[str, Any] = {
    "effect": "idempotent" if common.MODE == "keys" else "external",
    "reconcile": find if common.MODE == "asked" else None,
    "timeout": timedelta(seconds=10),
    "settle_after": timedelta(seconds=3),
    "not_sent": (common.Refusal,),
    "retry": Retry(attempts=5, first=timedelta(seconds=common.RETRY_S)),
}
UNDOING = {
    call["undo"]: app.tool(name=call["undo"], **DECLARED)(undo) for call in calls(PLAN) if "undo" in call
}  # fmt: skip
TOOLS = {
    name: app.tool(name=name, compensate=UNDOING.get(undo_name), **DECLARED)(perform)
    for name, undo_name in sorted({(call["call"], call.get("undo", "")) for call in calls(PLAN)})
}


@app.agent(on_failure="rollback")
async def follow(run: Run[None], name: str) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []

    async def make(call: dict[str, Any]) -> dict[str, Any]:
        asked = run.options(approval=APPROVAL) if call.get("approval") else run
        receipt = await asked.call(TOOLS[call["call"]], call["act"], call["args"])
        return common.entry(call, receipt)

    for call in PLAN:
        if "sleep" in call:
            await run.sleep(timedelta(seconds=call["sleep"]))
        elif "fail" in call:
            raise OutOfStock(call["fail"])
        elif "turns" in call:
            async for state in run.turns(Turns(left=call["turns"])):
                if not state.left:
                    break
                await make(call)
                state.left -= 1
        elif "all" in call:
            output += await run.gather(*[make(one) for one in call["all"]])
        else:
            output.append(await make(call))
    return output
