"""Branches of gather, map and first: each is compared for itself, and their opening by their keys."""

from tests.gate.case import UNSEEN, Stand, adoptable, breaks, change, goes_on, same

BEFORE = Stand("the run has not come to it", begun=False)
GATHERED = Stand("the gather is behind the run, which sleeps")
IN_IT = Stand("a call in a branch may have been sent", dies_in="buy")
HALF = Stand("a branch is in its midst", dies_after="step weigh")
MAPPED = Stand("the map is behind the run, which sleeps", moves=1)
IN_MAP = Stand("its worker has died in one branch of the map", moves=1, dies_in="price", nth=3)
CHOSEN = Stand("what came first is behind the run, which sleeps", moves=2)
ENDED = Stand("the run has ended", last=True)

_GATHER = 'await run.gather(bought(run, "cup"), run.call(announce, customer))'
_MAP = "await run.map(one, ITEMS, key=str)"
_FIRST = "await run.first(quick=run.step(weigh, customer), slow=run.sleep(DAY))"
_ITEMS = 'ITEMS = ["pen", "ink", "paper"]'
_PRICE = "cents = await run.step(price, item)"
_BUY = "return await run.call(buy, item, cents)"
_BOUGHT = "async def bought(run: Run[None], item: str) -> str:\n"

CASES = [
    *change(
        "Branches of a gather", "a third one", "fan",
        [(_GATHER, _GATHER.replace("customer))", 'customer), run.step(check, "x"))')),
            ("first, second = ", "first, second, _ = ")],
        (GATHERED, breaks("gather(bought.0, announce.0)", "gather(bought.0, announce.0, check.0)")),
        (IN_IT, breaks("gather(", "gather(")), (ENDED, breaks("gather(", "gather(")),
    ),
    *change(
        "Branches of a gather", "one is gone", "fan",
        [(_GATHER, 'await run.gather(bought(run, "cup"))'), ("first, second = ", "(first,) = "),
            ("{first} {second}", "{first}")],
        (GATHERED, breaks("gather(bought.0, announce.0)", "gather(bought.0)")), (IN_IT, breaks("gather(", "gather(")),
    ),
    *change(
        "Branches of a gather", "the other way round", "fan",
        [(_GATHER, 'await run.gather(run.call(announce, customer), bought(run, "cup"))')],
        (GATHERED, breaks("gather(bought.0, announce.0)", "gather(announce.0, bought.0)")),
        (IN_IT, breaks("gather(", "gather(")),
    ),
    *change(
        "Branches of a gather", "a function in one is called otherwise", "fan",
        [(_BOUGHT, _BOUGHT.replace("bought", "acquired")), (_GATHER, _GATHER.replace("bought", "acquired")),
            ("return await bought(run, item)", "return await acquired(run, item)")],
        (GATHERED, breaks("gather(bought.0, announce.0)", "gather(acquired.0, announce.0)")),
        (IN_IT, breaks("gather(", "gather(")),
        (ENDED, breaks("gather(", "gather(")),
    ),
    *change(
        "Branches of a gather", "a function in one is called otherwise, and the agent says `renamed=`", "fan",
        [(_BOUGHT, _BOUGHT.replace("bought", "acquired")), (_GATHER, _GATHER.replace("bought", "acquired")),
            ("return await bought(run, item)", "return await acquired(run, item)"),
         ("@app.agent()", '@app.agent(renamed={"bought": "acquired"})')],
        (GATHERED, same()), (IN_IT, same()), (ENDED, same()),
    ),
    *change(
        "Gather removed", "one call after the other", "fan",
        [(_GATHER, 'await bought(run, "cup"), await run.call(announce, customer)')],
        (GATHERED, breaks("gather(", "weigh(", wrong=UNSEEN)),
        (IN_IT, breaks("gather(", "weigh(", wrong=UNSEEN)), (BEFORE, goes_on()),
    ),
    *change(
        "Step in a branch renamed", "`price` is called `cost`", "fan",
        [(_PRICE, 'cents = await run.options(name="cost").step(price, item)')],
        (GATHERED, adoptable("price(", "cost(", "take-old")), (IN_IT, adoptable("price(", "cost(", "take-old")),
        (HALF, goes_on()),
        (MAPPED, adoptable("price(", "cost(", "take-old", "take-old", "take-old", "take-old")),
    ),
    *change(
        "Step in a branch inserted", "`check` before the call", "fan",
        [(_BUY, "await run.step(check, item)\n    " + _BUY)],
        (GATHERED, adoptable("buy(", "check(", "insert")), (IN_IT, adoptable("buy(", "check(", "insert")),
        (HALF, goes_on()),
    ),
    *change(
        "Call in a branch with something else", "`buy` pays a cent more", "fan",
        [(_BUY, _BUY.replace("cents", "cents + 1"))],
        (GATHERED, breaks("buy(", "buy(")), (IN_IT, breaks("buy(", "buy(")), (HALF, goes_on()),
        (ENDED, breaks("buy(", "buy(")),
    ),
    *change(
        "Call in a branch inserted", "`announce` before `buy`", "fan",
        [(_BUY, "await run.call(announce, item)\n    " + _BUY)],
        (GATHERED, breaks("buy(", "announce(")), (IN_IT, breaks("buy(", "announce(")), (HALF, goes_on()),
        (IN_MAP, breaks("buy(", "announce(")),
    ),
    *change(
        "Call in a branch removed", "nothing is bought", "fan", [(_BUY, "return str(cents)")],
        (GATHERED, breaks("buy(", "the end of the branch")), (HALF, goes_on()),
        (IN_IT, breaks("buy(", "the end of the branch")),
    ),
    *change(
        "Items of a map", "one more", "fan", [(_ITEMS, _ITEMS.replace("]", ', "nib"]'))],
        (GATHERED, same()), (IN_MAP, breaks("map(pen, ink, paper)", "map(pen, ink, paper, nib)")),
        (MAPPED, breaks("map(", "map(")),
    ),
    *change(
        "Items of a map", "one is gone", "fan", [(_ITEMS, _ITEMS.replace('"ink", ', ""))],
        (GATHERED, same()), (IN_MAP, breaks("map(pen, ink, paper)", "map(pen, paper)")),
        (MAPPED, breaks("map(", "map(")),
    ),
    *change(
        "Items of a map", "in another order", "fan", [(_ITEMS, 'ITEMS = ["paper", "ink", "pen"]')],
        (GATHERED, same()), (IN_MAP, breaks("map(pen, ink, paper)", "map(paper, ink, pen)")),
        (MAPPED, breaks("map(", "map(")),
    ),
    *change(
        "Keys of a map", "upper case", "fan", [(_MAP, _MAP.replace("key=str", "key=str.upper"))],
        (GATHERED, same()), (IN_MAP, breaks("map(pen, ink, paper)", "map(PEN, INK, PAPER)")),
        (MAPPED, breaks("map(", "map(")),
    ),
    *change(
        "Limit of a map", "one at a time", "fan", [(_MAP, _MAP.replace("key=str", "key=str, limit=1"))],
        (GATHERED, same()), (IN_MAP, goes_on()), (MAPPED, same()), (ENDED, same()),
    ),
    *change(
        "Branches of first", "`slow` is called `late`", "fan", [(_FIRST, _FIRST.replace("slow=", "late="))],
        (MAPPED, same()), (CHOSEN, breaks("first(quick, slow)", "first(quick, late)")),
        (ENDED, breaks("first(quick, slow)", "first(quick, late)")),
    ),
    *change(
        "Branches of first", "a third one", "fan",
        [(_FIRST, _FIRST.replace("slow=", "third=run.sleep(2 * DAY), slow="))],
        (MAPPED, same()), (CHOSEN, breaks("first(quick, slow)", "first(quick, third, slow)")),
    ),
    *change(
        "Branches of first", "what lost waits for two days", "fan",
        [(_FIRST, _FIRST.replace("slow=run.sleep(DAY)", "slow=run.sleep(2 * DAY)"))],
        (MAPPED, same()), (CHOSEN, breaks("sleep(1 day", "sleep(2 days")),
    ),
    *change(
        "Branches of first", "what won looks at something else", "fan",
        [(_FIRST, _FIRST.replace("weigh, customer", 'weigh, "Bob"'))],
        (MAPPED, same()), (CHOSEN, adoptable("weigh(", "weigh(", "take-old")),
    ),
    *change(
        "Gather where there was none", "two calls at once", "order",
        [("receipt = await run.call(charge, name, price.cents)",
                "receipt, _ = await run.gather(run.call(charge, name, price.cents), run.step(greet, name))")],
        (Stand("the run is behind them"), breaks("charge(", "gather(charge.0, greet.0)")),
        (Stand("the run has not come to them", dies_after="step quote"), goes_on()),
    ),
]  # fmt: skip
