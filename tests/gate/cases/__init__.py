"""All cases."""

from tests.gate.cases import approvals, branches, effects, ends, operations, steps, turns, waits

CASES = [
    *steps.CASES, *operations.CASES, *effects.CASES, *waits.CASES, *approvals.CASES, *branches.CASES, *turns.CASES,
    *ends.CASES,
]  # fmt: skip
