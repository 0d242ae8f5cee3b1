"""The people who are asked: what nobody else can know, looked up in the bank's books; what somebody has to agree to.

They say it on the command line, as anybody could from another terminal.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from examples.dunning.fleet import ROOT, program
from examples.dunning.witness import Effect
from outlive.model.approval import ApprovalRow
from outlive.model.operation import OperationRow

WHO = "dana@accounts"
APPROVER = "rosa@finance"


@dataclass(frozen=True, slots=True)
class Word:
    """What a person says of one operation, as the command that says it."""

    command: list[str]

    def __str__(self) -> str:
        return f"{program()} {shlex.join(self.command)}"

    def say(self, environment: dict[str, str]) -> tuple[bool, str]:
        """Whether it was accepted, and what the program answered. It may be too early to say *did not happen*."""
        done = subprocess.run(
            [sys.executable, "-m", "outlive", *self.command], cwd=ROOT, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        return done.returncode == 0, (done.stdout + done.stderr).strip()


def decide(operation: OperationRow, effects: Sequence[Effect]) -> Word:
    """From the books: the charge is there, or it is not."""
    found = next((one for one in effects if one.key == operation.key), None)
    base = ["resolve", operation.run, operation.id]
    if found is None:
        return Word([*base, "did-not-happen", "--who", WHO, "--why", "not in the bank's books"])
    outcome = json.dumps({"charge_id": found.charge_id, "cents": found.cents})
    return Word(
        [*base, "happened", "--outcome", outcome, "--who", WHO, "--why", f"the bank's books have {found.charge_id}"]
    )


def agree(approval: ApprovalRow) -> Word:
    """To what waits for an approval, as it was proposed."""
    return Word(["approve", approval.id, "--who", APPROVER, "--role", approval.role, "--why", "the sum is right"])
