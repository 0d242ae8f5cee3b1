"""Steps that are renamed, removed, inserted, put into another order, or called with something else."""

from tests.gate.case import UNSEEN, Stand, adoptable, breaks, change, goes_on, same

ASLEEP = Stand("it is recorded, more after it, and the run sleeps")
JUST = Stand("it is the last that is recorded", dies_after="step quote")
IN_IT = Stand("its worker has died in it", dies_in="quote")
BEFORE = Stand("the run has not come to it", dies_after="step look_up")
AHEAD = Stand("the run sleeps before it")
ENDED = Stand("the run has ended", last=True)

_QUOTED = "price = await run.step(quote, name, 3)"
_AGENT = "@app.agent()"
_NAMED = "name = await run.step(look_up, customer)"
_CHARGED = "receipt = await run.call(charge, name, price.cents)"
_SLEEPS = "await run.sleep(DAY)\n"
_WRITTEN = "await run.step(write_down, parcel)"
_RENAMED = (_QUOTED, 'price = await run.options(name="estimate").step(quote, name, 3)')
_GREETED = "await run.step(greet, customer)\n    "
_SIGNED = "async def quote(customer: str, items: int) -> Price:"
_GREETS = ("step quote", "step greet")

CASES = [
    *change(
        "Step renamed", "`quote` is called `estimate`", "order", [_RENAMED],
        (ASLEEP, adoptable("quote(", "estimate(", "take-old")), (JUST, adoptable("quote(", "estimate(", "take-old")),
        (IN_IT, goes_on()), (BEFORE, goes_on()), (ENDED, adoptable("quote(", "estimate(", "take-old")),
    ),
    *change(
        "Step renamed", "`quote` is called `estimate`, and the agent says `renamed=`", "order",
        [_RENAMED, (_AGENT, '@app.agent(version="2", renamed={"quote": "estimate"})')],
        (ASLEEP, same()), (JUST, goes_on()), (IN_IT, goes_on()), (ENDED, same()),
    ),
    *change(
        "Step removed", "`quote` is not asked for any more", "order", [(_QUOTED, "price = Price(cents=312)")],
        (ASLEEP, adoptable("quote(", "charge(", "skip")), (JUST, adoptable("quote(", "charge(", "skip")),
        (IN_IT, goes_on()), (BEFORE, goes_on()), (ENDED, adoptable("quote(", "charge(", "skip")),
    ),
    *change(
        "Step removed", "`write_down` is not asked for any more", "order", [(_WRITTEN, "")],
        (AHEAD, same()), (ENDED, adoptable("write_down(", "the end of the agent", "skip")),
    ),
    *change(
        "Step inserted", "`greet` before a step", "order", [(_QUOTED, _GREETED + _QUOTED)],
        (ASLEEP, adoptable("quote(", "greet(", "insert")), (JUST, adoptable("quote(", "greet(", "insert")),
        (IN_IT, goes_on()), (BEFORE, goes_on()), (ENDED, adoptable("quote(", "greet(", "insert")),
    ),
    *change(
        "Step inserted", "`greet` before an operation", "order", [(_CHARGED, _GREETED + _CHARGED)],
        (ASLEEP, adoptable("charge(", "greet(", "insert")),
        (Stand("the operation may have been sent", dies_in="charge"), adoptable("charge(", "greet(", "insert")),
        (JUST, goes_on()),
    ),
    *change(
        "Step inserted", "`greet` before a wait", "order", [(_SLEEPS, _GREETED + _SLEEPS)],
        (Stand("the run waits there"), adoptable("sleep(", "greet(", "insert")),
        (Stand("the wait is over", dies_after="intent ship", moves=1), adoptable("sleep(", "greet(", "insert")),
        (JUST, goes_on()),
    ),
    *change(
        "Step inserted", "`greet` behind the wait", "order", [(_SLEEPS, _SLEEPS + "    " + _GREETED.rstrip(" "))],
        (Stand("the run waits"), same()), (ENDED, adoptable("ship(", "greet(", "insert")),
    ),
    *change(
        "Steps in another order", "`look_up` and `quote`", "order",
        [(_NAMED, 'price = await run.step(quote, "Ada Lovelace", 3)'), (_QUOTED, _NAMED)],
        (ASLEEP, adoptable("look_up(", "quote(", "skip", "insert")),
        (BEFORE, adoptable("look_up(", "quote(", "insert")), (ENDED, adoptable("look_up(", "quote(", "skip", "insert")),
    ),
    *change(
        "Step called with something else", "`quote` of 4 items, not 3", "order", [(_QUOTED, _QUOTED.replace("3", "4"))],
        (ASLEEP, adoptable("quote(", "quote(", "take-old")), (JUST, adoptable("quote(", "quote(", "run-again")),
        (IN_IT, goes_on()), (ENDED, adoptable("quote(", "quote(", "take-old")),
    ),
    *change(
        "Parameter of a step", "`quote` gets `rush: bool = False`, and nobody says it", "order",
        [(_SIGNED, "async def quote(customer: str, items: int, rush: bool = False) -> Price:")],
        (ASLEEP, same()), (JUST, goes_on()), (IN_IT, goes_on()), (ENDED, same()),
    ),
    *change(
        "Parameter of a step", "`quote` gets `rush: bool`, and it is said", "order",
        [(_SIGNED, "async def quote(customer: str, items: int, rush: bool) -> Price:"),
         (_QUOTED, "price = await run.step(quote, name, 3, False)")],
        (ASLEEP, adoptable("quote(", "quote(", "take-old")), (IN_IT, goes_on()),
    ),
    *change(
        "Parameter of a step", "`items` is called `count`", "order",
        [(_SIGNED, "async def quote(customer: str, count: int) -> Price:"),
         ("cents=items * 100", "cents=count * 100")],
        (ASLEEP, adoptable("quote(", "quote(", "take-old")), (IN_IT, goes_on()),
    ),
    *change(
        "Parameter of a step", "`items` is a `float`, not an `int`", "order",
        [(_SIGNED, "async def quote(customer: str, items: float) -> Price:"),
         ("cents=items * 100", "cents=int(items * 100)")],
        (ASLEEP, adoptable("quote(", "quote(", "take-old")), (IN_IT, goes_on()),
    ),
    *change(
        "Result of a step", "a price needs a `currency`", "order",
        [("    cents: int\n", "    cents: int\n    currency: str\n"),
         ("Price(cents=items * 100 + len(customer))", 'Price(cents=items * 100 + len(customer), currency="EUR")')],
        (ASLEEP, breaks("a result of quote(", "another type: ")),
        (JUST, breaks("a result of quote(", "another type: ")),
        (IN_IT, goes_on()), (ENDED, breaks("a result of quote(", "another type: ")),
    ),
    *change(
        "Result of a step", 'a price has a `currency: str = "EUR"`', "order",
        [("    cents: int\n", '    cents: int\n    currency: str = "EUR"\n')],
        (ASLEEP, same()), (JUST, goes_on()), (ENDED, same()),
    ),
    *change(
        "Result of a step", "a price has no cents any more, but euros", "order",
        [("    cents: int\n", "    euros: float\n"),
            ("cents=items * 100 + len(customer)", "euros=items + len(customer) / 100"),
         ("price.cents", "round(price.euros * 100)")],
        (ASLEEP, breaks("a result of quote(", "another type: ")), (BEFORE, goes_on()),
    ),
    *change(
        "Body of a step", "`quote` counts otherwise", "order", [("items * 100 + len(customer)", "items * 99")],
        (ASLEEP, same()), (JUST, goes_on()), (IN_IT, goes_on()), (ENDED, same()),
    ),
    *change(
        "Step becomes a tool", "`quote` is a `read` tool", "order",
        [("async def quote(customer: str, items: int)",
          '@app.tool(effect="read")\nasync def quote(op: Operation[None], customer: str, items: int)'),
         (_QUOTED, "price = await run.call(quote, name, 3)")],
        (ASLEEP, breaks("quote(", "quote(")), (JUST, adoptable("quote(", "quote(", "skip")),
        (IN_IT, goes_on()),
    ),
    *change(
        "Two changes at once", "`quote` is called `estimate`, and `charge` takes a cent more", "order",
        [_RENAMED, (_CHARGED, _CHARGED.replace("price.cents", "price.cents + 1"))],
        (ASLEEP, breaks("quote(", "estimate(", wrong=UNSEEN)),
        (JUST, adoptable("quote(", "estimate(", "take-old")),
    ),
]  # fmt: skip
