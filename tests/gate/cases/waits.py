"""What is drawn, told, waited for and asked."""

from tests.gate.case import Stand, breaks, change, goes_on, same

SLEEPS = Stand("it waits for a day")
RECEIVES = Stand("it waits for a message", moves=1)
ASKS = Stand("it waits for an answer", moves=2)
RESTS = Stand("it waits again, behind all of that", moves=3)
ENDED = Stand("the run has ended", last=True)

_NOW = "at = run.now()\n"
_EMIT = 'await run.emit("begun", Begun(number=1))\n'
_SLEEP = "    await run.sleep(DAY)\n    word"
_WORD = 'word = await run.receive("words", Word)'
_SURE = 'sure = await run.ask("Shall we?", bool, role="boss")'
_NUMBER = "number = run.random()\n"
_SEND = "said = await run.call(send, word.text, sure)"
_FITTED = "The message that was received fitted when it came."

CASES = [
    *change(
        "Duration of a wait", "two days, not one", "talk", [(_SLEEP, _SLEEP.replace("DAY", "2 * DAY"))],
        (SLEEPS, breaks("sleep(1 day", "sleep(2 days")), (RECEIVES, breaks("sleep(1 day", "sleep(2 days")),
        (RESTS, breaks("sleep(1 day", "sleep(2 days")), (ENDED, breaks("sleep(1 day", "sleep(2 days")),
    ),
    *change(
        "Duration of a wait", "two days, not one, of the last", "talk",
        [("    await run.sleep(DAY)\n    await run.step", "    await run.sleep(2 * DAY)\n    await run.step")],
        (Stand("the run has not come to it"), same()), (RESTS, breaks("sleep(1 day", "sleep(2 days")),
    ),
    *change(
        "Wait removed", "there is no sleep before the message", "talk", [(_SLEEP, "    word")],
        (SLEEPS, breaks("sleep(", "receive(words)")), (RECEIVES, breaks("sleep(", "receive(words)")),
    ),
    *change(
        "Wait inserted", "one more sleep before the first", "talk",
        [(_SLEEP, "    await run.sleep(DAY / 2)\n" + _SLEEP)],
        (SLEEPS, breaks("sleep(1 day", "sleep(12:00:00")), (RECEIVES, breaks("sleep(1 day", "sleep(12:00:00")),
        (Stand("the run has not come to it", dies_after="emitted"), goes_on()),
    ),
    *change(
        "Topic of a message", "`words` is called `phrases`", "talk", [(_WORD, _WORD.replace("words", "phrases"))],
        (SLEEPS, same()), (RECEIVES, breaks("receive(words)", "receive(phrases)")),
        (ASKS, breaks("receive(words)", "receive(phrases)")), (ENDED, breaks("receive(words)", "receive(phrases)")),
    ),
    *change(
        "Type of a message", "a word needs a `language`", "talk",
        [("    text: str\n", "    text: str\n    language: str\n"),
            ('"words": \'{"text": "tea"}\'', '"words": \'{"text": "tea", "language": "en"}\'')],
        (SLEEPS, same()), (RECEIVES, same(says="The message that comes has to fit the new type.")),
    ),
    *change(
        "Type of a message", "a word needs a `language`", "talk",
        [("    text: str\n", "    text: str\n    language: str\n")],
        (ASKS, breaks("a message for receive(", "another type", says=_FITTED)),
        (ENDED, breaks("a message for receive(", "another type", says=_FITTED)),
        (Stand("its worker has died when it was received", moves=1, dies_after="woken receive:words"),
         breaks("a message for receive(", "another type", says=_FITTED)),
    ),
    *change(
        "Type of a message", "a word may have a `language`", "talk",
        [("    text: str\n", '    text: str\n    language: str = ""\n')],
        (RECEIVES, same()), (ASKS, same()), (ENDED, same()),
    ),
    *change(
        "Wait for a message", "it gets a `timeout=`", "talk",
        [(_WORD, _WORD.replace("Word)", "Word, timeout=2 * DAY)"))],
        (SLEEPS, same()), (RECEIVES, same(says="It goes on waiting as it began.")), (ASKS, same()), (ENDED, same()),
    ),
    *change(
        "Question", "another text", "talk", [(_SURE, _SURE.replace("Shall", "May"))],
        (RECEIVES, same()), (ASKS, breaks("ask(", "ask(")), (RESTS, breaks("ask(", "ask(")),
    ),
    *change(
        "Question", "another role", "talk", [(_SURE, _SURE.replace("boss", "owner"))],
        (RECEIVES, same()), (ASKS, breaks("ask(", "ask(")), (RESTS, breaks("ask(", "ask(")),
    ),
    *change(
        "Question", "the answer is a `str`, not a `bool`", "talk",
        [(_SURE, _SURE.replace("bool", "str")), (_SEND, _SEND.replace("sure)", 'sure == "yes")')),
            ('"Shall we?": "true"', '"Shall we?": \'"yes"\'')],
        (RECEIVES, same()), (ASKS, same()),
    ),
    *change(
        "Question", "the answer is a `str`, not a `bool`", "talk",
        [(_SURE, _SURE.replace("bool", "str")), (_SEND, _SEND.replace("sure)", 'sure == "yes")'))],
        (RESTS, breaks("a message for ask(", "another type", says=_FITTED)),
    ),
    *change(
        "Question removed", "nobody is asked any more", "talk", [(_SURE, "sure = True")],
        (RECEIVES, same()), (ASKS, breaks("ask(", "run.random()")), (RESTS, breaks("ask(", "run.random()")),
    ),
    *change(
        "Event renamed", "`begun` is called `started`", "talk", [(_EMIT, _EMIT.replace("begun", "started"))],
        (SLEEPS, breaks("emit:begun(", "emit:started(")), (ENDED, breaks("emit:begun(", "emit:started(")),
    ),
    *change(
        "Event with something else", "`number` is 2", "talk", [(_EMIT, _EMIT.replace("number=1", "number=2"))],
        (SLEEPS, breaks("emit:begun(", "emit:begun(")),
    ),
    *change(
        "Event inserted", "one before the first sleep", "talk", [(_EMIT, _EMIT + "    " + _EMIT)],
        (SLEEPS, breaks("sleep(", "emit:begun(")), (RECEIVES, breaks("sleep(", "emit:begun(")),
    ),
    *change(
        "Event inserted", "one behind the message", "talk", [(_WORD + "\n", _WORD + "\n    " + _EMIT)],
        (SLEEPS, same()), (RECEIVES, same()), (ASKS, breaks("ask(", "emit:begun(")),
    ),
    *change(
        "Event removed", "`begun` is not told", "talk", [(_EMIT, "\n")],
        (SLEEPS, breaks("emit:begun(", "sleep(")), (RECEIVES, breaks("emit:begun(", "sleep(")),
    ),
    *change(
        "Value inserted", "`run.uuid()` before all", "talk", [(_NOW, _NOW + "    run.uuid()\n")],
        (SLEEPS, breaks("emit:begun(", "run.uuid()")), (ENDED, breaks("emit:begun(", "run.uuid()")),
    ),
    *change(
        "Value inserted", "`run.uuid()` behind the message", "talk", [(_NUMBER, _NUMBER + "    run.uuid()\n")],
        (RECEIVES, same()), (ASKS, same()), (RESTS, breaks("send(", "run.uuid()")),
    ),
    *change(
        "Value removed", "`run.now()` is not asked for", "talk",
        [(_NOW, "at = DAYS_AGO\n"), ("DAY = timedelta", "DAYS_AGO = datetime(2026, 1, 1)\nDAY = timedelta"),
            ("import timedelta", "import datetime, timedelta")],
        (SLEEPS, breaks("run.now()", "emit:begun(")), (ENDED, breaks("run.now()", "emit:begun(")),
    ),
    *change(
        "Value removed", "`run.random()` is not asked for", "talk", [(_NUMBER, "number = 0.5\n")],
        (ASKS, same()), (RESTS, breaks("run.random()", "send(")),
    ),
    *change(
        "Value replaced", "`run.random()` becomes `run.uuid()`", "talk",
        [(_NUMBER, "number = run.uuid().int / 2**128\n")],
        (ASKS, same()), (RESTS, breaks("run.random()", "run.uuid()")),
    ),
]  # fmt: skip
