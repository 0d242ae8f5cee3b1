"""Rules that ask people, and what they are asked about."""

from tests.gate.case import Stand, breaks, change, goes_on, same

BEFORE = Stand("the run has not come to it", dies_after="step count")
ASKED = Stand("people are asked")
AGREED = Stand("it was approved, and is not sent yet", decided="approve")
REFUSED = Stand("it was rejected, and the run does not know yet", decided="reject")
PENDING = Stand("it was approved, and may have been sent", decided="approve", dies_in="pay")
DONE = Stand("it was approved and done, and the run sleeps", decided="approve", moves=1)
ENDED = Stand("the run has ended", last=True)

_RULE = '@app.tool(approval=Approval(role="finance"))\n'
_CALL = "paid = await run.call(pay, what, length)"
_NONE = "@app.tool()\n"
_OTHER = '@app.tool(approval=Approval(role="board"))\n'
_TWO = '@app.tool(approval=Approval(role="finance", quorum=2))\n'
_LARGE = "@app.tool(approval=large)\n"
_FUNCTION = (
    'def large(cents: int) -> Approval | None:\n    return Approval(role="finance") if cents > {} else None\n\n\n'
)
_ANEW = "Who has agreed, or is asked, is asked anew by the new rule."
_FREE = "It is not waited for any more."

CASES = [
    *change(
        "Approval not needed any more", "`pay` has no rule", "desk", [(_RULE, _NONE)],
        (BEFORE, goes_on()), (ASKED, same(says=_FREE)), (AGREED, same(says=_FREE)), (PENDING, same()),
        (DONE, same()), (ENDED, same()),
    ),
    *change(
        "Approval needed from now on", "`pay` gets a rule", "desk", [(_NONE, _RULE)],
        (BEFORE, goes_on()), (Stand("its worker has died in it: it may have been sent", dies_in="pay"), same()),
        (Stand("it is in doubt, and a person is asked", dies_in="pay", found=True), same()),
        (Stand("it is done, and the run sleeps"), same()), (ENDED, same()), before=[(_RULE, _NONE)],
    ),
    *change(
        "Approval by others", "*board*, not *finance*", "desk", [(_RULE, _OTHER)],
        (BEFORE, goes_on()), (ASKED, same(says=_ANEW)), (AGREED, same(says=_ANEW)), (PENDING, same()),
        (DONE, same()), (ENDED, same()),
    ),
    *change(
        "Approval by more", "two of *finance*, not one", "desk", [(_RULE, _TWO)],
        (BEFORE, goes_on()), (ASKED, same(says=_ANEW)), (AGREED, same(says=_ANEW)), (DONE, same()), (ENDED, same()),
    ),
    *change(
        "Approval by a rule", "only above a hundred cents", "desk",
        [(_RULE, _FUNCTION.format(100) + _LARGE)],
        (BEFORE, goes_on()), (ASKED, same(says=_FREE)), (AGREED, same(says=_FREE)), (DONE, same()),
    ),
    *change(
        "Approval rejected", "`pay` has no rule any more", "desk", [(_RULE, _NONE)],
        (REFUSED, same(status="failed")),
    ),
    *change(
        "Approval rejected", "*board* has to agree, not *finance*", "desk", [(_RULE, _OTHER)],
        (REFUSED, same(says=_ANEW)),
    ),
    *change(
        "Approval rejected", "another body of a step", "desk", [("return len(text)", "return len(text) + 0")],
        (REFUSED, same(status="failed", says="It was rejected, and stays so.")),
    ),
    *change(
        "Approval of something else", "`pay` is called with a cent more", "desk",
        [(_CALL, _CALL.replace("length", "length + 1"))],
        (BEFORE, goes_on()), (ASKED, breaks("pay(", "pay(")), (AGREED, breaks("pay(", "pay(")),
        (PENDING, breaks("pay(", "pay(")), (DONE, breaks("pay(", "pay(")), (ENDED, breaks("pay(", "pay(")),
    ),
    *change(
        "Approval of a call that is gone", "nothing is paid", "desk", [(_CALL, 'paid = "free"')],
        (BEFORE, goes_on()), (ASKED, breaks("pay(", "sleep(")), (AGREED, breaks("pay(", "sleep(")),
        (DONE, breaks("pay(", "sleep(")),
    ),
    *change(
        "Approval that is said with the call", "`run.options(approval=…)` in the place of the tool's rule", "desk",
        [(_RULE, _NONE),
            (_CALL, 'paid = await run.options(approval=Approval(role="finance")).call(pay, what, length)')],
        (BEFORE, goes_on()), (ASKED, same()), (AGREED, same()), (DONE, same()),
    ),
    *change(
        "Tool renamed while people are asked", "`pay` is called `transfer`", "desk",
        [(_RULE, '@app.tool(approval=Approval(role="finance"), name="transfer")\n')],
        (ASKED, breaks("pay(", "transfer(")), (AGREED, breaks("pay(", "transfer(")),
        (DONE, breaks("pay(", "transfer(")),
    ),
    *change(
        "Tool renamed while people are asked", "`pay` is called `transfer`, and the agent says `renamed=`", "desk",
        [(_RULE, '@app.tool(approval=Approval(role="finance"), name="transfer")\n'),
            ("@app.agent()", '@app.agent(renamed={"pay": "transfer"})')],
        (ASKED, same()), (AGREED, same()), (DONE, same()),
    ),
]  # fmt: skip
