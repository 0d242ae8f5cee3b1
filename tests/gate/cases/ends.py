"""Ends, input and version of an agent, and agents that are gone."""

from tests.gate.case import Expected, Stand, adoptable, breaks, change, goes_on, same

ASLEEP = Stand("the run sleeps")
READY = Stand("the run was started, and nobody has begun it", begun=False)
PENDING = Stand("a call may have been sent", dies_in="charge")
QUOTED = Stand("a step is recorded", dies_after="step quote")
ENDED = Stand("the run has ended", last=True)
NEW = Stand("the run sleeps; new ones are started with the new release")

_AGENT = "@app.agent()\n"
_SIGNED = "async def order(run: Run[None], customer: str) -> str:"
_NAMED = "name = await run.step(look_up, customer)"
_CHARGED = "receipt = await run.call(charge, name, price.cents)"
_RETURN = 'return f"{receipt.number}, {parcel}"'
_SLEEPS = "await run.sleep(DAY)\n"
_NOBODY = Expected(
    "unclaimed",
    "breaks",
    status="waiting",
    says="No worker of the new release takes it; one of the old release still can.",
)
_NOBODY_BLOCKED = Expected(
    "unclaimed",
    "breaks",
    status="ready",
    says="What may have been sent is in doubt; it waits for a worker of the old release.",
)
_PINNED = Expected(
    "unclaimed", "breaks", status="waiting", says="It is pinned to version 1, and waits for a worker of that."
)

CASES = [
    *change(
        "Result of the agent", "another text", "order", [(_RETURN, "return receipt.number")],
        (ASLEEP, same()),
        (ENDED, goes_on(says="It has ended as it is recorded; the gate says what this code would give.")),
    ),
    *change(
        "Result of the agent", "a list, not a text", "order",
        [(_SIGNED, _SIGNED.replace("-> str", "-> list[str]")), (_RETURN, "return [receipt.number, parcel]")],
        (ASLEEP, same()), (QUOTED, goes_on()),
    ),
    *change(
        "End of the agent", "it returns before the wait", "order", [(_SLEEPS, "return receipt.number\n")],
        (ASLEEP, breaks("sleep(", "the end of the agent")), (PENDING, same(says="It ends there.")),
        (QUOTED, goes_on()), (ENDED, breaks("sleep(", "the end of the agent")),
    ),
    *change(
        "End of the agent", "it returns before a step", "order", [(_CHARGED, 'return "done"')],
        (ASLEEP, breaks("charge(", "the end of the agent")), (QUOTED, goes_on()),
    ),
    *change(
        "End of the agent", "it raises before the wait", "order", [(_SLEEPS, 'raise ValueError("no")\n')],
        (ASLEEP, breaks("sleep(", "the end of the agent")), (QUOTED, goes_on(status="failed")),
    ),
    *change(
        "End of the agent", "it raises at once", "order", [(_NAMED, f'raise ValueError("no")\n    {_NAMED}')],
        (ASLEEP, breaks("look_up(", "the end of the agent")),
        (READY, goes_on(status="failed", says="It fails, as its code says.")),
    ),
    *change(
        "`finally` of the agent", "one more call in it", "order",
        [(_SLEEPS, "try:\n        await run.sleep(DAY)\n    finally:\n        await run.call(thank, name)\n")],
        (ASLEEP, same()), (QUOTED, goes_on()), (ENDED, breaks("ship(", "thank(")),
    ),
    *change(
        "Input of the agent", "an `int`, not a `str`", "order",
        [(_SIGNED, _SIGNED.replace("customer: str", "customer: int"))],
        (ASLEEP, breaks("", "", says="What it was given does not fit any more.")),
        (READY, breaks("", "", says="What it was given does not fit any more.")),
        (ENDED, breaks("", "", says="What it was given does not fit any more.")),
    ),
    *change(
        "Input of the agent", "a model, not a `str`", "order",
        [(_SIGNED, _SIGNED.replace("customer: str", "customer: Price"))],
        (ASLEEP, breaks("", "", says="What it was given does not fit any more.")),
        (READY, breaks("", "", says="What it was given does not fit any more.")),
    ),
    *change(
        "Input of the agent", "a `str` or None", "order",
        [(_SIGNED, _SIGNED.replace("customer: str", "customer: str | None")),
            ("run.step(look_up, customer)", 'run.step(look_up, customer or "")')],
        (ASLEEP, same()), (READY, goes_on()), (ENDED, same()),
    ),
    *change("Agent removed", "it is not registered", "order", [(_AGENT, "@app.agent(name=\"another\")\n")],
        (ASLEEP, _NOBODY), (PENDING, _NOBODY_BLOCKED)),
    *change("Agent renamed", "`order` is called `sale`", "order", [(_AGENT, "@app.agent(name=\"sale\")\n")],
        (ASLEEP, _NOBODY)),
    *change(
        "Version of the agent", "2, not 1, and nothing else", "order", [(_AGENT, '@app.agent(version="2")\n')],
        (ASLEEP, same()), (PENDING, same()), (ENDED, same()),
    ),
    *change(
        "Version of the agent", "2, with the old order for runs of version 1", "order",
        [(_AGENT, '@app.agent(version="2")\n'),
            (_CHARGED, f'if run.version != "1":\n        await run.call(thank, name)\n    {_CHARGED}')],
        (ASLEEP, same()), (PENDING, same()), (QUOTED, goes_on()), (ENDED, same()),
    ),
    *change(
        "Version of the agent", "2, with another order, and `pin=True` from now on", "order",
        [(_AGENT, '@app.agent(version="2", pin=True)\n'), (_CHARGED, f"await run.call(thank, name)\n    {_CHARGED}")],
        (ASLEEP, breaks("charge(", "thank(", says="A run is pinned when it is started: this one was not.")),
    ),
    *change(
        "Version of the agent", "2, of an agent that said `pin=True`", "order",
        [("pin=True", 'pin=True, version="2"')],
        (ASLEEP, _PINNED), before=[(_AGENT, "@app.agent(pin=True)\n")],
    ),
    *change(
        "Version of the agent", "the same, of an agent that said `pin=True`; another body of a step", "order",
        [("items * 100", "items * 99")],
        (ASLEEP, same()), before=[(_AGENT, "@app.agent(pin=True)\n")],
    ),
    *change(
        "On failure", '`on_failure="rollback"`', "order", [(_AGENT, '@app.agent(on_failure="rollback")\n')],
        (ASLEEP, same()), (PENDING, same()), (ENDED, same()),
    ),
    *change(
        "Time-out of a step", "`run.options(timeout=…)`", "order",
        [("run.step(quote, name, 3)", "run.options(timeout=DAY).step(quote, name, 3)")],
        (ASLEEP, same()), (Stand("its worker has died in it", dies_in="quote"), goes_on()), (ENDED, same()),
    ),
    *change(
        "Code outside of calls", "a line that reads the environment", "order",
        [(_NAMED, 'customer = __import__("os").environ.get("NOBODY_HAS_THIS", "Bob")\n    ' + _NAMED)],
        (ASLEEP, adoptable("look_up(", "look_up(", "take-old")), (ENDED, adoptable("look_up(", "look_up(", "take-old")),
    ),
]  # fmt: skip
