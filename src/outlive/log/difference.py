"""Where code and log differ, as entries say it: what is recorded there, and what was asked for instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How a person can accept a difference at a step; `kinds.Adopted` says what each means.
Adoption = Literal["skip", "insert", "take-old", "run-again"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where a build diverged: the recorded call that was in the way, by its first entry, and what the code asked for.

    `kind` is that of the call that was asked for; it is empty where the code asked for no more in this scope.
    """

    entry: int
    scope: str
    kind: str = ""
    name: str = ""
    digest: str = ""
    shown: str = ""
