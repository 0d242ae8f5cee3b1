"""Their conformance tests, run on a saver of ours: every capability by name, and none of them skipped."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import CapabilityReport, ProgressCallbacks

from outlive.langgraph import OutliveSaver

# As of langgraph-checkpoint-conformance 0.0.2: 58 of the base, 23 extended.
EXPECTED = {
    "put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5,
    "delete_for_runs": 7, "copy_thread": 8, "prune": 8,
}  # fmt: skip


async def report_on(url: str) -> tuple[CapabilityReport, list[str]]:
    """Their report, and the traces of what failed."""
    traces: list[str] = []

    @checkpointer_test(name="OutliveSaver")
    async def saver() -> AsyncGenerator[OutliveSaver, None]:
        async with OutliveSaver(url) as one:
            yield one

    def ended(capability: str, test: str, passed: bool, trace: str | None) -> None:
        if not passed:
            traces.append(f"{capability} {test}: {trace}")

    report = await validate(saver, capabilities=set(EXPECTED), progress=ProgressCallbacks(on_test_result=ended))
    return report, traces
