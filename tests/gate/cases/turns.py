"""Runs with a loop of turns: of the turns behind it a run knows its state alone, of the calls before the loop all."""

from tests.gate.case import Stand, adoptable, breaks, change, goes_on, same

FIRST = Stand("the run waits in its first turn")
THIRD = Stand("the run waits in its third turn", moves=2)
IN_IT = Stand("its worker has died in its third turn", dies_in="weigh", nth=3)
PENDING = Stand("a call of its third turn may have been sent", dies_in="bill", nth=3)
COMMITTED = Stand("its worker has died when the third turn began", dies_after="turn", nth=3)
PROLOGUE = Stand("the run has not come to the loop", dies_after="step rate")
ENDED = Stand("the run has ended", last=True)

_RATE = "cents = await run.step(rate, customer)"
_OPEN = "account = await run.call(open_account, customer)"
_TURNS = "run.turns(State(left=4))"
_WEIGHT = "weight = await run.step(weigh, state.left)"
_SENT = "state.sent.append(await run.call(bill, account, cents + weight))"
_SLEEP = "        await run.sleep(DAY)\n"
_CHECK = "        await run.step(check, weight)\n"
_CLOSED = "closed = await run.call(close_account, account)"
_LEFT = "    left: int\n"
_KEPT = "The calls before the loop are not adopted: only the present turn keeps what was accepted."

CASES = [
    *change(
        "Step of a turn renamed", "`weigh` is called `measure`", "loop",
        [(_WEIGHT, 'weight = await run.options(name="measure").step(weigh, state.left)')],
        (THIRD, adoptable("weigh(", "measure(", "take-old")), (PENDING, adoptable("weigh(", "measure(", "take-old")),
        (IN_IT, goes_on()),
        (COMMITTED, goes_on(says="What the turns behind it have recorded is not asked for any more.")),
        (PROLOGUE, goes_on()), (ENDED, same(says="The last turn has no such step.")),
    ),
    *change(
        "Step of a turn inserted", "`check` before `weigh`", "loop",
        [(_WEIGHT, "await run.step(check, state.left)\n        " + _WEIGHT)],
        (THIRD, adoptable("weigh(", "check(", "insert")), (COMMITTED, goes_on()),
        (FIRST, adoptable("weigh(", "check(", "insert")),
    ),
    *change(
        "Step of a turn removed", "`check` behind the wait", "loop", [(_CHECK, "")],
        (THIRD, same()), (COMMITTED, goes_on()),
        (Stand("its worker has died behind it", dies_after="step check", nth=3),
            adoptable("check(", "the end of the turn", "skip")),
    ),
    *change(
        "Call of a turn with something else", "`bill` takes a cent more", "loop",
        [(_SENT, _SENT.replace("weight)", "weight + 1)"))],
        (THIRD, breaks("bill(", "bill(")), (PENDING, breaks("bill(", "bill(")), (IN_IT, goes_on()),
        (COMMITTED, goes_on()), (ENDED, same()),
    ),
    *change(
        "Call of a turn inserted", "another `bill` before the wait", "loop",
        [(_SLEEP, "        await run.call(bill, account, 1)\n" + _SLEEP)],
        (THIRD, breaks("sleep(", "bill(")), (PENDING, same()), (COMMITTED, goes_on()),
    ),
    *change(
        "Wait of a turn", "it waits for two days", "loop", [(_SLEEP, _SLEEP.replace("DAY", "2 * DAY"))],
        (THIRD, breaks("sleep(1 day", "sleep(2 days")), (COMMITTED, goes_on()), (IN_IT, goes_on()),
    ),
    *change(
        "Call behind the loop", "`close_account` is gone", "loop", [(_CLOSED, 'closed = "open"')],
        (THIRD, same()), (ENDED, breaks("close_account(", "the end of the agent")),
    ),
    *change(
        "Call behind the loop", "one more `bill`", "loop",
        [(_CLOSED, "await run.call(bill, account, 1)\n    " + _CLOSED)],
        (THIRD, same()), (ENDED, breaks("close_account(", "bill(")),
    ),
    *change(
        "Step before the loop renamed", "`rate` is called `tariff`", "loop",
        [(_RATE, 'cents = await run.options(name="tariff").step(rate, customer)')],
        (THIRD, breaks("rate(", "tariff(", says=_KEPT)), (COMMITTED, breaks("rate(", "tariff(", says=_KEPT)),
        (PROLOGUE, adoptable("rate(", "tariff(", "take-old")), (ENDED, breaks("rate(", "tariff(")),
    ),
    *change(
        "Step before the loop renamed", "`rate` is called `tariff`, and the agent says `renamed=`", "loop",
        [(_RATE, 'cents = await run.options(name="tariff").step(rate, customer)'),
            ("@app.agent()", '@app.agent(renamed={"rate": "tariff"})')],
        (THIRD, same()), (COMMITTED, goes_on()), (PROLOGUE, goes_on()), (ENDED, same()),
    ),
    *change(
        "Step before the loop inserted", "`check` behind the account", "loop",
        [(_OPEN, _OPEN + "\n    await run.step(check, cents)")],
        (PROLOGUE, goes_on()),
    ),
    *change(
        "Step before the loop inserted", "`check` behind the account", "loop",
        [(_OPEN, _OPEN + "\n    await run.step(check, cents)")],
        (THIRD, breaks("turns(State)", "check(")), (COMMITTED, breaks("turns(State)", "check(")),
    ),
    *change(
        "Call before the loop inserted", "a `bill` behind the account", "loop",
        [(_OPEN, _OPEN + "\n    await run.call(bill, account, 1)")],
        (THIRD, breaks("turns(State)", "bill(")), (COMMITTED, breaks("turns(State)", "bill(")),
    ),
    *change(
        "Step before the loop removed", "`rate` is not asked for", "loop", [(_RATE, "cents = 3")],
        (THIRD, breaks("rate(", "open_account(", says=_KEPT)), (PROLOGUE, adoptable("rate(", "open_account(", "skip")),
    ),
    *change(
        "Call before the loop with something else", "the account of *Bob*", "loop",
        [(_OPEN, _OPEN.replace("customer)", '"Bob")'))],
        (THIRD, breaks("open_account(", "open_account(")), (PROLOGUE, goes_on()),
    ),
    *change(
        "State of the loop", 'it gets `note: str = ""`', "loop", [(_LEFT, _LEFT + '    note: str = ""\n')],
        (THIRD, same()), (COMMITTED, goes_on()), (PENDING, same()), (ENDED, same()),
    ),
    *change(
        "State of the loop", "it needs a `note`", "loop",
        [(_LEFT, _LEFT + "    note: str\n"), (_TURNS, 'run.turns(State(left=4, note=""))')],
        (THIRD, breaks("turns(State)", "turns(State) with another initial state")),
        (COMMITTED, breaks("turns(State)", "turns(State) with another initial state")), (PROLOGUE, goes_on()),
    ),
    *change(
        "State of the loop", "`left` has to be 3 or more", "loop",
        [(_LEFT, "    left: int = Field(ge=3)\n"), ("import BaseModel", "import BaseModel, Field")],
        (THIRD, breaks("a state of turns(State)", "another: ")),
        (FIRST, same(status="failed", says="It fails in the turn that leaves such a state.")),
    ),
    *change(
        "State of the loop", "`sent` is called `done`", "loop",
        [("    sent: list[str] = []\n", "    done: list[str] = []\n"), ("state.sent.append", "state.done.append"),
            ("join(state.sent)", "join(state.done)")],
        (THIRD, same(says="**What `sent` held is lost**: a field that the class has no more is dropped.")),
    ),
    *change(
        "State of the loop", "its class is called `Progress`", "loop",
        [("class State", "class Progress"), (_TURNS, "run.turns(Progress(left=4))")],
        (THIRD, breaks("turns(State)", "turns(Progress) with another initial state")), (PROLOGUE, goes_on()),
    ),
    *change(
        "Begin of the loop", "with 5, not 4", "loop", [(_TURNS, "run.turns(State(left=5))")],
        (THIRD, breaks("turns(State)", "turns(State) with another initial state")), (PROLOGUE, goes_on()),
        (ENDED, breaks("turns(State)", "turns(State) with another initial state")),
    ),
    *change(
        "End of the loop", "it ends a turn earlier", "loop", [("if not state.left:", "if state.left == 2:")],
        (FIRST, same()), (THIRD, breaks("weigh(", "close_account(")), (COMMITTED, goes_on()),
    ),
    *change(
        "Second loop", "another one behind the first", "loop",
        [(_CLOSED, f"async for more in {_TURNS}:\n        break\n    {_CLOSED}")],
        (THIRD, same(status="failed", says="A run has one loop: it fails when it comes to the second.")),
    ),
    *change(
        "Loop removed", "the calls of a turn are made once", "loop",
        [(f"async for state in {_TURNS}:\n        if not state.left:\n            break\n",
                "state = State(left=4)\n    if state.left:\n")],
        (PROLOGUE, goes_on()),
    ),
    *change(
        "Loop removed", "the calls of a turn are made once", "loop",
        [(f"async for state in {_TURNS}:\n        if not state.left:\n            break\n",
                "state = State(left=4)\n    if state.left:\n")],
        (THIRD, breaks("turns(State)", "weigh(")),
    ),
    *change(
        "Loop removed", "the agent ends before it", "loop", [(_OPEN, _OPEN + "\n    return account")],
        (THIRD, breaks("turns(State)", "the end of the agent")),
    ),
    *change(
        "Loop where there was none", "the calls are made in turns now", "order",
        [("class Receipt", "class State(BaseModel):\n    left: int\n\n\nclass Receipt"),
         ("    receipt = await", "    async for _ in run.turns(State(left=1)):\n        break\n    receipt = await")],
        (Stand("the run is behind the place"), breaks("charge(", "turns(State)")),
        (Stand("the run has not come to it", dies_after="step quote"), goes_on()),
    ),
]  # fmt: skip
