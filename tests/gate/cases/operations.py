"""Calls of tools that are renamed, removed, inserted, put into another order, or made with something else."""

from tests.gate.case import UNSEEN, Stand, breaks, change, goes_on, same

ASLEEP = Stand("it has its outcome, and the run sleeps")
PENDING = Stand("its worker has died in it: it may have been sent", dies_in="charge")
DOUBT = Stand("it is in doubt, and a person is asked", dies_in="charge", found=True)
BEFORE = Stand("the run has not come to it", dies_after="step quote")
ENDED = Stand("the run has ended", last=True)

_AGENT = "@app.agent()"
_TOOL = "@app.tool(raises=(CardDeclined,))\n"
_CHARGED = "receipt = await run.call(charge, name, price.cents)"
_SLEEPS = "await run.sleep(DAY)\n"
_SHIPPED = "parcel = await run.call(ship, name)"
_THANKED = "await run.call(thank, name)\n    "
_SIGNED = "async def charge(op: Operation[None], customer: str, cents: int)"
_BILL = (_TOOL, '@app.tool(raises=(CardDeclined,), name="bill")\n')
_DECLINED = [
    ("    return Receipt(number=f", "    if cents:\n        raise CardDeclined(customer)\n    return Receipt(number=f"),
    (_CHARGED, f"try:\n        {_CHARGED}\n    except CardDeclined:\n        receipt = Receipt(number='none')"),
]

CASES = [
    *change(
        "Tool renamed", "`charge` is called `bill`", "order", [_BILL],
        (ASLEEP, breaks("charge(", "bill(")), (PENDING, breaks("charge(", "bill(")),
        (DOUBT, breaks("charge(", "bill(")),
        (BEFORE, goes_on()), (ENDED, breaks("charge(", "bill(")),
    ),
    *change(
        "Tool renamed", "`charge` is called `bill`, and the agent says `renamed=`", "order",
        [_BILL, (_AGENT, '@app.agent(version="2", renamed={"charge": "bill"})')],
        (ASLEEP, same()), (PENDING, same()), (DOUBT, same()), (BEFORE, goes_on()), (ENDED, same()),
    ),
    *change(
        "Tool removed", "`charge` is gone, and so is its call", "order",
        [(_TOOL + _SIGNED, "async def charge(op: Operation[None], customer: str, cents: int)"),
         (_CHARGED, 'receipt = Receipt(number="free")')],
        (ASLEEP, breaks("charge(", "sleep(")), (PENDING, breaks("charge(", "sleep(")),
        (DOUBT, breaks("charge(", "sleep(")), (BEFORE, goes_on()), (ENDED, breaks("charge(", "sleep(")),
    ),
    *change(
        "Tool removed", "`ship` is gone, and so is its call", "order",
        [('@app.tool(effect="idempotent")\nasync def ship', "async def ship"), (_SHIPPED, 'parcel = "none"')],
        (Stand("the run sleeps before it"), same()), (ENDED, breaks("ship(", "write_down(", wrong=UNSEEN)),
    ),
    *change(
        "Call inserted", "`thank` before `charge`", "order", [(_CHARGED, _THANKED + _CHARGED)],
        (ASLEEP, breaks("charge(", "thank(")), (PENDING, breaks("charge(", "thank(")),
        (DOUBT, breaks("charge(", "thank(")), (BEFORE, goes_on()), (ENDED, breaks("charge(", "thank(")),
    ),
    *change(
        "Call inserted", "`thank` before the wait", "order", [(_SLEEPS, _THANKED + _SLEEPS)],
        (Stand("the run waits there"), breaks("sleep(", "thank(")), (PENDING, same()), (BEFORE, goes_on()),
    ),
    *change(
        "Call inserted", "`thank` behind the wait", "order", [(_SLEEPS, _SLEEPS + "    " + _THANKED.rstrip(" "))],
        (Stand("the run waits"), same()), (PENDING, same()),
        (Stand("the call behind it may have been sent", moves=1, dies_in="ship"), breaks("ship(", "thank(")),
    ),
    *change(
        "Calls in another order", "`ship` before `charge`", "order",
        [(_SHIPPED, ""), (_CHARGED, _SHIPPED + "\n    " + _CHARGED)],
        (ASLEEP, breaks("charge(", "ship(")), (PENDING, breaks("charge(", "ship(")), (BEFORE, goes_on()),
        (ENDED, breaks("charge(", "ship(")),
    ),
    *change(
        "Call with something else", "`charge` takes a cent more", "order",
        [(_CHARGED, _CHARGED.replace("cents", "cents + 1"))],
        (ASLEEP, breaks("charge(", "charge(")), (PENDING, breaks("charge(", "charge(")),
        (DOUBT, breaks("charge(", "charge(")), (BEFORE, goes_on()), (ENDED, breaks("charge(", "charge(")),
    ),
    *change(
        "Parameter of a tool", '`charge` gets `currency: str = "EUR"`, and nobody says it', "order",
        [(_SIGNED, _SIGNED.replace("cents: int", 'cents: int, currency: str = "EUR"'))],
        (ASLEEP, same()), (PENDING, same()), (DOUBT, same()), (BEFORE, goes_on()), (ENDED, same()),
    ),
    *change(
        "Parameter of a tool", "`cents` is called `amount`", "order",
        [(_SIGNED, _SIGNED.replace("cents", "amount")), ("{customer}/{cents}", "{customer}/{amount}")],
        (ASLEEP, breaks("charge(", "charge(")), (PENDING, breaks("charge(", "charge(")), (BEFORE, goes_on()),
    ),
    *change(
        "Result of a tool", "a receipt needs a `bank`", "order",
        [("    number: str\n", "    number: str\n    bank: str\n"),
         ('Receipt(number=f"{customer}/{cents}")', 'Receipt(number=f"{customer}/{cents}", bank="ours")'),
         ('{"charge": \'{"number": "found"}\'}', '{"charge": \'{"number": "found", "bank": "ours"}\'}')],
        (ASLEEP, breaks("a result of charge(", "another type: ")), (PENDING, same()), (DOUBT, same()),
        (BEFORE, goes_on()), (ENDED, breaks("a result of charge(", "another type: ")),
    ),
    *change(
        "Result of a tool", "a receipt may have a `bank`", "order",
        [("    number: str\n", '    number: str\n    bank: str = "ours"\n')],
        (ASLEEP, same()), (PENDING, same()), (ENDED, same()),
    ),
    *change(
        "Exception of a tool", "`CardDeclined` is not in `raises=` any more", "order", [(_TOOL, "@app.tool()\n")],
        (Stand("it was raised, and the run sleeps"), breaks("charge(", "a tool that does not declare it")),
        (BEFORE, goes_on(says="What raises is in doubt then; a person is asked.")),
        before=_DECLINED,
    ),
    *change(
        "Exception of a tool", "`CardDeclined` is not in `raises=` any more", "order", [(_TOOL, "@app.tool()\n")],
        (Stand("it was not raised, and the run sleeps"), same()), (PENDING, same()),
    ),
    *change(
        "Exception of a tool", "`TimeoutError` is in `raises=` too", "order",
        [(_TOOL, "@app.tool(raises=(CardDeclined, TimeoutError))\n")],
        (Stand("another was raised, and the run sleeps"), same()), before=_DECLINED,
    ),
    *change(
        "Exception of a tool", "`CardDeclined` is called `NoMoney`", "order",
        [("class CardDeclined", "class NoMoney"), (_TOOL, "@app.tool(raises=(NoMoney,))\n"),
         ("raise CardDeclined", "raise NoMoney"), ("except CardDeclined", "except NoMoney")],
        (Stand("it was raised, and the run sleeps"), breaks("charge(", "a tool that does not declare it")),
        before=_DECLINED,
    ),
    *change(
        "Policy of a tool", "`charge` gets another `timeout=` and `retry=`", "order",
        [(_TOOL, "@app.tool(raises=(CardDeclined,), timeout=DAY, retry=Retry(attempts=9))\n"),
         ("import Operation, Outlive, Run", "import Operation, Outlive, Retry, Run")],
        (ASLEEP, same()), (PENDING, same()), (ENDED, same()),
    ),
    *change(
        "Policy of a tool", "`charge` can be looked up", "order",
        [(_TOOL, "@app.tool(raises=(CardDeclined,), reconcile=find)\n"),
         ("class CardDeclined", "async def find(op: Operation[None]) -> Happened[Receipt]:\n"
          '    return Happened(Receipt(number="looked up"))\n\n\nclass CardDeclined'),
         ("import Operation, Outlive, Run", "import Happened, Operation, Outlive, Run")],
        (ASLEEP, same()), (PENDING, same(says="It is looked up then.")), (DOUBT, same()), (BEFORE, goes_on()),
    ),
    *change(
        "Policy of a tool", "`charge` gets `compensate=`", "order",
        [(_TOOL, "@app.tool(raises=(CardDeclined,), compensate=give_back)\n"),
         ("class CardDeclined",
             "async def give_back(op: Operation[None]) -> None:\n    return None\n\n\nclass CardDeclined")],
        (ASLEEP, same()), (PENDING, same()), (ENDED, same()),
    ),
    *change(
        "Policy of a tool", "`charge` gets a business key", "order",
        [(_TOOL, "@app.tool(raises=(CardDeclined,), key=once)\n"),
         ("class CardDeclined", "def once(customer: str) -> str:\n    return customer\n\n\nclass CardDeclined")],
        (ASLEEP, same()), (PENDING, same()), (DOUBT, same()), (BEFORE, goes_on()), (ENDED, same()),
    ),
    *change(
        "Tool becomes a step", "`thank` is a step", "order",
        [('@app.tool(effect="idempotent")\nasync def thank(op: Operation[None], customer', "async def thank(customer"),
         ("await run.call(thank, name)", "await run.step(thank, name)")],
        (Stand("it has its outcome, and the run sleeps"), breaks("thank(", "thank(", wrong=UNSEEN)),
        (Stand("the run has not come to it", dies_in="charge"), same()),
        before=[(_SLEEPS, _THANKED + _SLEEPS)],
    ),
]  # fmt: skip
