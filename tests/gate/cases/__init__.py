"""All cases, in rooms for people: a title, a sentence, and the changes."""

from dataclasses import dataclass

from tests.gate.case import Case
from tests.gate.cases import approvals, branches, effects, ends, examples, frameworks, operations, steps, turns, waits


@dataclass(frozen=True, slots=True)
class Room:
    """Cases that are told of together."""

    title: str
    says: str
    cases: list[Case]


ROOMS = [
    Room("Steps", "A step is harmless: where code and log differ at one, a person can accept it.", steps.CASES),
    Room(
        "Calls of tools",
        "What a tool did stays recorded, and the code has to ask for it. Behind what is recorded all may change.",
        operations.CASES,
    ),
    Room(
        "Effects of tools",
        "A call that was begun goes on as it was begun; the next one is made as the tool is now.",
        effects.CASES,
    ),
    Room("Values, events, waits and questions", "They were drawn, told or waited for, and so they stay.", waits.CASES),
    Room(
        "Approvals",
        "The rule of the release that sends counts. What people agree to is one call with its arguments.",
        approvals.CASES,
    ),
    Room("Branches", "Each branch is compared for itself; what opens them is compared by its keys.", branches.CASES),
    Room(
        "Turns", "Of the turns behind it a run knows its state alone; of the calls before the loop, all.", turns.CASES
    ),
    Room(
        "Agents of frameworks",
        "What a model has said is history: it is asked for the next turn only, whatever it is then.",
        frameworks.CASES,
    ),
    Room("Examples", "The [examples](../examples), with what they act on as it really is.", examples.CASES),
    Room("Agents", "What they are given, what they give, their ends, their versions.", ends.CASES),
]

CASES = [case for room in ROOMS for case in room.cases]
