"""The plan as a Temporal workflow; what fails is compensated in the workflow, as its saga samples do."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from conformance.adapters import common
    from conformance.adapters.temporal.code import PLAN


@workflow.defn(name="follow")
class Follow:
    def __init__(self) -> None:
        self._asks: dict[str, Any] | None = None
        self._approved: set[str] = set()

    @workflow.signal
    def approve(self, call: str) -> None:
        self._approved.add(call)

    @workflow.query
    def asks(self) -> dict[str, Any] | None:
        return self._asks

    @workflow.run
    async def run(self, first: int) -> list[dict[str, Any]]:
        output: list[dict[str, Any]] = []
        done: list[dict[str, Any]] = []
        try:
            for number, call in enumerate(PLAN):
                if "sleep" in call:
                    await workflow.sleep(call["sleep"])
                elif "fail" in call:
                    raise ApplicationError(call["fail"], type="OutOfStock", non_retryable=True)
                elif "turns" in call:
                    for turn in range(first, call["turns"]):
                        if workflow.info().is_continue_as_new_suggested():
                            workflow.continue_as_new(turn)
                        await self._make(call, f"{number}.{turn}")
                elif "all" in call:
                    each = [self._make(one, f"{number}.{branch}") for branch, one in enumerate(call["all"])]
                    output += await asyncio.gather(*each)
                else:
                    output.append(await self._make(call, str(number)))
                    done.append(call)
        except ApplicationError:
            for call in reversed(done):
                await self._make(common.undone(call), f"undo-{call['call']}")
            raise
        return output

    async def _make(self, call: dict[str, Any], place: str) -> dict[str, Any]:
        if call.get("approval"):
            self._asks = {"approval": "approval", "args": call["args"]}
            await workflow.wait_condition(lambda: "approval" in self._approved)
            self._asks = None
        run = workflow.info().workflow_id
        key = f"{run}-{place}" if common.MODE == "keys" else ""
        receipt = await workflow.execute_activity(
            call["call"],
            args=[run, call["act"], call["args"], key],
            start_to_close_timeout=timedelta(seconds=60),
            heartbeat_timeout=timedelta(seconds=common.LEASE_S),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=common.RETRY_S),
                maximum_attempts=1 if common.MODE == "once" else 5,
                non_retryable_error_types=[] if common.MODE == "keys" else ["NoAnswer"],
            ),
        )
        return common.entry(call, receipt)
