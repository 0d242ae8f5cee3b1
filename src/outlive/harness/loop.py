"""The loop of an agent of a framework in a run, turn by turn: one model request, the tools that it asks for, a commit.

Each turn goes on from the conversation so far, live as after a crash, so that the two cannot differ. Its calls leave
the replay window when it is committed: what has to be done again after a crash, and what a change of the code can
break, is one turn. An agent that is used inside another one commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from outlive.engine.guest import Guest
from outlive.engine.run import Run
from outlive.harness.conversation import Turn

SUMMARY = "This conversation was longer. A summary of what was before the messages that follow:"
"""What stands before a summary, for the model."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The agent has given its output."""

    output: object


class Loop:
    """One agent's conversation in one run. A framework says what a turn is, and how a conversation is read."""

    def __init__(self, run: Run[Any]) -> None:
        self.run, self.guest = run, Guest(run)

    async def turn(self, number: int, prompt: str, turn: Turn) -> Ended | None:
        """One turn. What it has added is in `turn` then, for the commit."""
        raise NotImplementedError

    async def recall(self, turn: Turn) -> None:
        """Read the conversation from the log, to where the present turn begins."""
        raise NotImplementedError

    async def drive(self, prompt: str) -> object:
        """Go on to the end."""
        return await (self._uncommitted(prompt) if self.run.used else self._committed(prompt))

    async def _committed(self, prompt: str) -> object:
        turns, fresh = self.run.turns(Turn()), True
        async for turn in turns:
            if fresh and turns.number:
                await self.recall(turn)
            fresh = False
            ended = await self.turn(turns.number, prompt, turn)
            if ended is not None:
                return ended.output
        raise AssertionError("a loop of turns has no end of its own")

    async def _uncommitted(self, prompt: str) -> object:
        turn, number = Turn(), 0
        while True:
            ended = await self.turn(number, prompt, turn)
            if ended is not None:
                return ended.output
            number += 1


def function_of(
    name: str, output: object, begin: Callable[[Run[Any]], Loop]
) -> Callable[[Run[Any], str], Coroutine[object, object, Any]]:  # fmt: skip
    """The agent as the function of a run and its prompt."""

    async def drive(run: Run[Any], prompt: str) -> object:
        return await begin(run).drive(prompt)

    drive.__name__ = drive.__qualname__ = name
    drive.__annotations__ = {"run": Run, "prompt": str, "return": output}
    return drive
