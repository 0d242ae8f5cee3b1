"""What the gate says of one run: the verdict, the entry it is about, and what a person can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from outlive.model.run import RunRow

Verdict: TypeAlias = Literal["same", "compatible", "needs adoption", "breaks", "acts"]

# The worst last.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
# With these the change can be deployed.
GOOD: frozenset[Verdict] = frozenset(("same", "compatible"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One run under the new code.

    `same`: the code ends as the log does, or stands where it stands. `compatible`: all that is recorded is asked for,
    then the code goes on live, after `entry`; `found` is what it does there. `needs adoption` and `breaks`: at `entry`
    the log has `expected`, the code asks for `found` at `line`; `remedies` are the ways in which a person can accept
    that. `acts`: the code does `found` at `line`, outside of steps and tools, each time that it is run again.

    `notes` are differences that stop nothing.
    """

    tenant: str
    run: str
    agent: str
    version: str
    status: str
    verdict: Verdict
    entry: int | None = None
    expected: str = ""
    found: str = ""
    line: str = ""
    why: str = ""
    remedies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    entries: int = 0
    file: str = ""
    """The bundle that it was read from, if it was."""

    @property
    def good(self) -> bool:
        """Whether the change does no harm to this run."""
        return self.verdict in GOOD

    def said(self) -> str:
        """The verdict in one line."""
        at = f" at {self.line}" if self.line else ""
        after = f" after entry {self.entry}" if self.entry is not None else ""
        match self.verdict:
            case "same":
                return "same"
            case "compatible":
                return f"compatible: {self.found}{at}{after}"
            case "acts":
                return f"acts outside a step: {self.found}{at}"
            case "needs adoption" | "breaks":
                return self._differs(at)

    def _differs(self, at: str) -> str:
        where = f" at entry {self.entry}" if self.entry is not None else ""
        if not self.expected:
            return f"{self.verdict}{where}: {self.why or self.found}{at}"
        return f"{self.verdict}{where}: the log has {self.expected}, the code asks for {self.found}{at}"


def of(row: RunRow, *, verdict: Verdict = "same", why: str = "", entries: int = 0) -> Judged:
    """A verdict about a run, with what its row says of it."""
    return Judged(
        tenant=row.tenant, run=row.id, agent=row.agent, version=row.version, status=row.status, verdict=verdict,
        why=why, entries=entries,
    )  # fmt: skip
