"""Somebody of finance, who knows what the folder does not say: one invoice is for less, and one was never ordered."""

from __future__ import annotations

import json
from collections.abc import Callable

from outlive.app.approvals import Approvals
from outlive.errors import ApprovalClosed

WHO, ROLE = "rosa", "finance"
LESS = {"K-5530": 9_310_00}
NEVER_ORDERED = {"BD-0007"}


async def decide(approvals: Approvals, say: Callable[[str], None]) -> int:
    """Decide about all that waits; about how many. What somebody else is faster with is theirs."""
    decided = 0
    for one in await approvals.list():
        invoice = str(json.loads(one.arguments)["invoice"])
        say(f"run {one.run} waits for {one.role}: {one.shown}")
        try:
            if invoice in NEVER_ORDERED:
                say(f"  $ outlive reject {one.id} --who {WHO} --role {ROLE} --why 'never ordered'")
                await approvals.reject(one.id, who=WHO, role=ROLE, why="never ordered")
            elif invoice in LESS:
                say(f"  $ outlive approve {one.id} --who {WHO} --role {ROLE} --edit '{{\"cents\": {LESS[invoice]}}}'")
                await approvals.approve(one.id, who=WHO, role=ROLE, arguments={"cents": LESS[invoice]})
            else:
                say(f"  $ outlive approve {one.id} --who {WHO} --role {ROLE}")
                await approvals.approve(one.id, who=WHO, role=ROLE)
        except ApprovalClosed as late:
            say(f"  {late}")
        decided += 1
    return decided
