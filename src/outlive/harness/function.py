"""The function harness: the agent is an async function, and calling it is the whole loop."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import cast

from outlive.engine.definition import AgentSpec
from outlive.engine.run import Run


class FunctionHarness:
    """Calls the agent's function with the run and its input."""

    async def drive(self, agent: AgentSpec, run: Run[object], input: object) -> object:
        """What the function returns."""
        try:
            return await cast("Awaitable[object]", agent.fn(run, input))
        except SystemExit as error:
            # A task that raises it would end the worker, and with it all the runs that did nothing wrong.
            raise RuntimeError(f"the agent called sys.exit({error.code})") from error
