"""A case of the fault corpus: one change of an application, where a run of the old release stands when the new one
takes over, what becomes of the run then, and what the gate has to say of it beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from outlive.log.difference import Adoption

How = Literal["goes on", "diverges", "blocked", "fails", "unclaimed"]
Verdict = Literal["same", "compatible", "needs adoption", "breaks"]

# What the gate does not say as it should, of changes that differ in several places.
UNSEEN = (
    "The gate says *needs adoption*, because a new step can be let in; what is asked for behind it cannot be known "
    "before it is done. Here the run diverges again, where nobody can adopt anything."
)

# Text of a file of the old release, which is there exactly once, and what the new one says in its place.
Edit = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Stand:
    """How far the old release has driven the run, and in words: *it waits for a day*.

    By default its worker goes on until there is nothing to do, and then `moves` more times: somebody answers, decides
    or sends what the run waits for, or the time comes that it waits for. One that is not `begun` was only started. The
    worker dies in the body of the function `dies_in` (when it has done its work, before it is recorded), or once an
    entry is there that is `dies_after`, such as *step quote*; `nth` counts from 1. With `last` it dies before the entry
    that the run has ended. After a death another worker of the old release looks at the run if it is `found`.
    One that is `recorded` was brought there elsewhere, and is imported from that file, and resumed.
    `decided` is what those say who are asked to approve something.
    """

    says: str
    moves: int = 0
    begun: bool = True
    dies_in: str = ""
    dies_after: str = ""
    nth: int = 1
    last: bool = False
    found: bool = False
    recorded: str = ""
    decided: Literal["", "approve", "reject"] = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """What becomes of the run, and the verdict that goes with it.

    `has` and `asks` are how the texts of the difference begin. `adopt` are the ways in which a person accepts one
    difference after the other, after which the run goes on. `status` is how it ends. `meanwhile` are bodies that may
    be executed although the run diverges, because they are in another branch. `noted` is in a note of the gate.
    `says` is told to people beside it. `wrong` says what happens instead, where it is not as it should be.
    """

    how: How
    verdict: Verdict
    has: str = ""
    asks: str = ""
    adopt: tuple[Adoption, ...] = ()
    status: str = "succeeded"
    reason: str = ""
    meanwhile: tuple[str, ...] = ()
    noted: str = ""
    says: str = ""
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One change. `app` is a module of `tests.gate.apps`; `before` is what the old release differs in from it."""

    kind: str
    change: str
    app: str
    edits: tuple[Edit, ...]
    stand: Stand
    expected: Expected
    before: tuple[Edit, ...] = ()

    @property
    def name(self) -> str:
        """What it is called among all of them."""
        return f"{self.kind}: {self.change} ({self.stand.says})"


def change(
    kind: str, what: str, app: str, edits: Sequence[Edit], *where: tuple[Stand, Expected],
    before: Sequence[Edit] = (), wrong: str = "",
) -> list[Case]:  # fmt: skip
    """One change, with the run at several places."""
    return [
        Case(kind, what, app, tuple(edits), stand, replace(expected, wrong=wrong or expected.wrong), tuple(before))
        for stand, expected in where
    ]


def goes_on(*, status: str = "succeeded", says: str = "") -> Expected:
    """The new release takes the run over, and goes on behind what is recorded."""
    return Expected("goes on", "compatible", status=status, says=says)


def same(*, status: str = "succeeded", says: str = "", noted: str = "") -> Expected:
    """It goes on, and stands at the very place where the log ends."""
    return Expected("goes on", "same", status=status, says=says, noted=noted)


def breaks(has: str, asks: str, *, says: str = "", wrong: str = "") -> Expected:
    """It stops before it does anything, and only code can mend it."""
    return Expected("diverges", "breaks", has, asks, says=says, wrong=wrong)


def adoptable(
    has: str, asks: str, *ways: Adoption, status: str = "succeeded", says: str = ""
) -> Expected:  # fmt: skip
    """It stops before it does anything, and goes on when a person accepts that in these ways, one after another."""
    return Expected("diverges", "needs adoption", has, asks, ways, status, says=says)
