"""What the linter finds, and what it says about each kind of it."""

from __future__ import annotations

from dataclasses import dataclass, field

# By code: what goes wrong on replay, and what to do instead. A rule may have a better remedy of its own.
CODES: dict[str, tuple[str, str]] = {
    "clock": (
        "the code between calls runs again on replay, and the clock has gone on",
        "`run.now()`: its value is recorded",
    ),
    "random": (
        "on replay it draws something else than the recorded calls were made with",
        "`run.random()`, or `random.Random(run.random())` for more than one number: what is drawn is recorded",
    ),
    "hash": (
        "hashes of texts and addresses of objects differ from process to process",
        "a digest (hashlib) of the value, or an id of your own",
    ),
    "set-order": (
        "the order of a set differs from process to process, and the calls that follow it with it",
        "`sorted(…)`, or a list or a dict, which keep their order",
    ),
    "environment": (
        "the worker that replays the run may have another environment than the one that recorded it",
        "ask in a step, `await run.step(…)`, or read it once where `deps` are opened and keep it out of decisions",
    ),
    "file": (
        "on replay the file may have changed or be missing, and what is written is written again",
        "a step for what is harmless to repeat, `await run.step(read_file, path)`; a tool for what acts",
    ),
    "network": (
        "nothing of it is recorded: on replay it is sent again and may answer something else",
        "a tool that says what repeating it does, `await run.call(tool, …)`, or a step for what is harmless to repeat",
    ),
    "process": (
        "nothing of it is recorded: on replay it is run again and may end differently",
        "a tool that says what repeating it does, `await run.call(tool, …)`, or a step for what is harmless to repeat",
    ),
    "sleep": (
        "it waits again from the beginning on each replay, and keeps the run loaded meanwhile",
        "`await run.sleep(timedelta(…))`: when it is over is recorded",
    ),
    "concurrency": (
        "what is ready first differs from replay to replay, and calls of the run outside of its scopes are refused",
        "`run.gather`, `run.map` or `run.first`: which branch ended how is recorded",
    ),
    "swallows": (
        "the signal that ends an attempt travels through here: the code goes on although nothing that it does counts",
        "catch `Exception`, or end the handler with `raise`",
    ),
    "global": (
        "what belongs to a module is changed again on each replay, and other runs of the worker share it",
        "a variable of the function, or the state of `run.turns`",
    ),
    "reason": (
        "a comment that silences a finding says why it is harmless",
        "`# outlive: replays - reason`",
    ),
    "log": (
        "it is said again on each replay",
        "`run.log`: it is silent while recorded calls are repeated",
    ),
    "unused": (
        "nothing is found on the line, so the comment silences nothing",
        "take it away",
    ),
}  # fmt: skip

# What is worth knowing and nothing to mend: replay goes on the same.
NOTES = frozenset({"log", "unused"})

# What only gives a value: harmless where that goes nowhere but into a log.
GIVES_VALUES = frozenset({"clock", "random", "hash", "set-order", "environment"})


@dataclass(frozen=True, slots=True)
class Place:
    """A line of source. `column` is counted from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Hop:
    """A function on the way to a finding, and the place in it that leads on: a call, at the end the finding itself."""

    function: str
    place: Place


@dataclass(frozen=True, slots=True)
class Found:
    """Something in a function, whoever reaches it. `what` is how the code names it."""

    code: str
    place: Place
    source: str
    what: str
    remedy: str = ""

    @property
    def why(self) -> str:
        """What goes wrong on replay."""
        return CODES[self.code][0]

    @property
    def advice(self) -> str:
        """What to do instead."""
        return self.remedy or CODES[self.code][1]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and how each agent gets there: the shortest way."""

    found: Found
    chains: dict[str, tuple[Hop, ...]]


@dataclass(slots=True)
class Report:
    """What was read and what was found. `agents` are those with a function of the user's own."""

    agents: list[str] = field(default_factory=list)
    frameworks: list[str] = field(default_factory=list)
    """Agents of frameworks: they have no such function."""
    functions: int = 0
    unread: list[str] = field(default_factory=list)
    """Functions whose source is not to be had."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
