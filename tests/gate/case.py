"""A case of the fault corpus: one change of an application, where a run of the old release stands when the new one
takes over, what becomes of the run then, and what the gate has to say of it beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outlive.log.difference import Adoption

How = Literal["goes on", "diverges", "blocked", "fails", "unclaimed"]
Verdict = Literal["same", "compatible", "needs adoption", "breaks"]

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
    decided: Literal["", "approve", "reject"] = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """What becomes of the run, and the verdict that goes with it.

    `has` and `asks` are how the texts of the difference begin. `adopt` are the ways in which a person accepts one
    difference after the other, after which the run goes on. `status` is how it ends. `meanwhile` are bodies that may
    be executed although the run diverges, because they are in another branch. `says` is told to people beside it.
    """

    how: How
    verdict: Verdict
    has: str = ""
    asks: str = ""
    adopt: tuple[Adoption, ...] = ()
    status: str = "succeeded"
    reason: str = ""
    meanwhile: tuple[str, ...] = ()
    says: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One change. `app` is a module of `tests.gate.apps`, or a package of examples.

    `wrong` says what should happen instead, where what happens is not what it should be.
    """

    kind: str
    change: str
    app: str
    edits: tuple[Edit, ...]
    stand: Stand
    expected: Expected
    before: tuple[Edit, ...] = ()
    """What the old release differs in from the file."""
    wrong: str = ""

    @property
    def name(self) -> str:
        """What it is called among all of them."""
        return f"{self.kind}: {self.change} ({self.stand.says})"


def change(
    kind: str, what: str, app: str, edits: Sequence[Edit], *where: tuple[Stand, Expected],
    before: Sequence[Edit] = (), wrong: str = "",
) -> list[Case]:  # fmt: skip
    """One change, with the run at several places."""
    return [Case(kind, what, app, tuple(edits), stand, expected, tuple(before), wrong) for stand, expected in where]


def goes_on(verdict: Verdict = "compatible", *, status: str = "succeeded", says: str = "") -> Expected:
    """The new release takes the run over, and everything that is recorded counts."""
    return Expected("goes on", verdict, status=status, says=says)


def same(*, status: str = "succeeded", says: str = "") -> Expected:
    """It goes on, and stands at the very place where the log ends."""
    return goes_on("same", status=status, says=says)


def breaks(has: str, asks: str, *, says: str = "", meanwhile: tuple[str, ...] = ()) -> Expected:
    """It stops before it does anything, and only code can mend it."""
    return Expected("diverges", "breaks", has, asks, says=says, meanwhile=meanwhile)


def adoptable(
    has: str, asks: str, *ways: Adoption, status: str = "succeeded", says: str = "", meanwhile: tuple[str, ...] = ()
) -> Expected:
    """It stops before it does anything, and goes on when a person accepts that in these ways, one after another."""
    return Expected("diverges", "needs adoption", has, asks, ways, status, says=says, meanwhile=meanwhile)
