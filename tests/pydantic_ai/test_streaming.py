"""What followers of a run see of a model while it writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from outlive import Outlive
from outlive.events import Event
from outlive.pydantic_ai import agent


class Pen:
    """A model that writes its second answer in two pieces, and waits between them."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.written = 0

    async def __call__(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        if not any(isinstance(one, ModelResponse) for one in messages):
            yield {0: DeltaToolCall("look", "{}", tool_call_id="look-1")}
            return
        self.written += 1
        yield "once upon "
        await self.go.wait()
        yield "a time"


async def look() -> str:
    """Look around."""
    return "seen"


async def test_text_is_seen_while_it_is_written_and_never_again(tmp_path: Path) -> None:
    pen, seen = Pen(), list[Event]()
    app: Outlive = Outlive(f"sqlite:///{tmp_path / 'runs.db'}")
    writer = Agent(FunctionModel(stream_function=pen), name="writer", tools=[look])
    registered = agent(app, writer, effects={"look": "read"}, stream=True)
    async with app, app.worker(), asyncio.timeout(60):
        handle = await app.start(registered, "begin")
        async with aclosing(handle.events(deltas=True)) as events:
            async for event in events:
                seen.append(event)
                pen.go.set()
        assert await handle.result() == "once upon a time"
        told = [(one.name, one.data) for one in seen]
        assert told[0] == ("writer.model", {"text": "once upon ", "place": 0, "over": False})
        assert seen[0].attempt is not None
        assert (seen[0].attempt.epoch, seen[0].attempt.number) == (1, 1)
        assert "a time" not in str(told[0])
        late = [event async for event in handle.events(deltas=True)]
        assert all(one.attempt is None for one in late), "what is recorded takes the place of what was on its way"
    assert pen.written == 1
