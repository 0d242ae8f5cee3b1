"""One agent of a framework in one turn of a run: its requests and the calls of its tools, as calls of that run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from pydantic import JsonValue

from outlive.engine.definition import ToolSpec
from outlive.engine.guest import Guest
from outlive.harness.units import Json, model_tool, storable, tool_name, unit_tool
from outlive.model.approval import Approval

log = logging.getLogger("outlive.harness")

Do = Callable[[Json], Awaitable[JsonValue]]


class Ledger:
    """Made for each turn. What is asked for is done once, and what is recorded is returned without doing it again."""

    def __init__(self, guest: Guest, agent: str, tools: Mapping[str, ToolSpec], approval: Approval) -> None:
        self.guest, self.agent = guest, agent
        self._tools, self.approval = dict(tools), approval
        self.responses: list[str] = []
        """The keys of the calls that have the responses of this turn, in order."""
        self.keys: dict[str, str] = {}
        """The keys of the tools' calls that have their outcome, by the id that the model gave the call."""

    @property
    def response(self) -> str:
        """The key of the last one."""
        return self.responses[-1] if self.responses else ""

    async def model(self, name: str, model: str, prompt: str, body: Callable[[], Awaitable[Json]]) -> Json:
        """One request to a model. What is recorded is what `body` gives, `response` and perhaps `cost`, with a mark of
        the prompt. Raises ModelRefused.
        """

        async def recording(arguments: dict[str, object]) -> object:
            return storable({**await body(), "prompt": prompt})

        tool = self._tool(name, lambda: model_tool(name))
        recorded = cast(Json, await self.guest.call(tool, {"model": model}, body=recording, made=self.responses.append))
        if recorded.get("prompt") != prompt:
            log.warning("%s was asked under another prompt or with other tools than it has now", name)
        return recorded

    async def plain(
        self, tool: ToolSpec, arguments: Json, do: Do, *, call_id: str, by_people: bool = False
    ) -> JsonValue:  # fmt: skip
        """One call of a plain tool: what `do` gives of the arguments, which a person may have edited.

        Raises what a `run.call` of it raises: ToolSaid, Rejected, ToolFailed.
        """
        named = is_named(tool)

        async def doing(approved: dict[str, object]) -> object:
            return storable(await do(cast(Json, approved if named else approved["arguments"])))

        asked = arguments if named else {"arguments": arguments}
        given = await self.guest.call(
            tool, asked, body=doing, lane=call_id, approval=self.approval, by_people=by_people,
            made=self.notes(call_id),
        )  # fmt: skip
        return cast(JsonValue, given)

    async def unit(self, name: str, body: Callable[[], Awaitable[object]]) -> object:
        """Another unit, recorded once; it may be repeated until it is."""

        async def doing(arguments: dict[str, object]) -> object:
            return await body()

        return await self.guest.call(self._tool(name, lambda: unit_tool(name)), {}, body=doing)

    def tool(self, name: str, make: Callable[[], ToolSpec]) -> ToolSpec:
        """The plain tool of a name: as it is registered, or made."""
        return self._tool(tool_name(self.agent, name), make)

    def notes(self, call_id: str) -> Callable[[str], None]:
        """What is to be told of a call of a tool: where its outcome is."""

        def made(key: str) -> None:
            self.keys[call_id] = key

        return made

    def _tool(self, name: str, make: Callable[[], ToolSpec]) -> ToolSpec:
        if name not in self._tools:
            self._tools[name] = make()
        return self._tools[name]


def is_named(tool: ToolSpec) -> bool:
    """Whether the arguments go to parameters of their names; else the tool has one that takes them all."""
    return [one.name for one in tool.signature.parameters] != ["arguments"]
