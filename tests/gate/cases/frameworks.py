"""Agents of pydantic-ai and of the OpenAI Agents SDK: what their models said is history, whoever is asked next."""

from dataclasses import replace

from tests.gate.case import Case, Edit, Expected, Stand, breaks, change, goes_on, same
from tests.gate.older import OLDER, STANDS, Older, file_of

ASKED = Stand("people are asked about a call of its second turn")
PENDING = Stand("a call of its second turn may have been sent", dies_in="pay")
TURNED = Stand("its worker has died when the third turn began", dies_after="turn", nth=3)
ENDED = Stand("the run has ended", last=True)
_OTHER = "The gate notes that it was asked under another prompt, or with other tools."
_NOTED = "under another prompt or with other tools"


def _of_both(app: str, framework: str, changes: list[tuple[str, str, list[Edit], str]]) -> list[Case]:
    """Changes after which every run goes on. Of some the gate makes a note."""
    found = []
    for kind, what, edits, noted in changes:
        says = _OTHER if noted else ""
        places = [
            (ASKED, same(says=says, noted=noted)), (PENDING, same(says=says, noted=noted)), (TURNED, goes_on()),
            (ENDED, same()),
        ]  # fmt: skip
        found += change(f"{framework}: {kind}", what, app, edits, *places[: 3 if kind == "Output" else 4])
    return found


def _older(one: Older) -> list[Case]:
    """A run that was recorded with an older release, and now this one is installed."""
    return [
        Case(
            "Release of a framework", f"`{one.package}` {one.version}, then the present one", one.app, (),
            replace(stand, recorded=file_of(one, name).name), goes_on() if name == "turned" else same(),
        )
        for name, stand in STANDS.items()
    ]  # fmt: skip


PYDANTIC = [
    *_of_both(
        "writer", "pydantic-ai",
        [
            ("Model", "`large`, not `small`", [('model_name="small"', 'model_name="large"')], ""),
            ("Prompt", "other instructions", [("Be brief.", "Be very brief.")], _NOTED),
            ("Tools", "one more", [("toolset(look, pay)", "toolset(look, listen, pay)")], _NOTED),
            ("Tools", "`look`, which it has called, is gone", [("toolset(look, pay)", "toolset(pay)")], _NOTED),
            ("Description of a tool", "of `pay`", [('"""Pay."""', '"""Pay at once."""')], ""),
            ("Output", "a model, not a `str`", [("output_type=str", "output_type=Report")], _NOTED),
            ("Effect of a plain tool", "`note` is *external*",
                [('effects={"note": "idempotent"}', 'effects={"note": "external"}')], ""),
            ("What a model says next", "another text", [('TextPart("all is done")', 'TextPart("done")')], ""),
        ],
    ),
    *change(
        "pydantic-ai: Output", "a model, not a `str`", "writer", [("output_type=str", "output_type=Report")],
        (ENDED, goes_on(says="It has ended as it is recorded; the model would be asked once more.")),
    ),
    *change(
        "pydantic-ai: Tools", "`pay`, which it has called, is gone", "writer",
        [("toolset(look, pay)", "toolset(look)")],
        (ASKED, breaks("pay(", "the end of the turn")), (PENDING, breaks("pay(", "the end of the turn")),
        (TURNED, goes_on()),
    ),
    *change(
        "pydantic-ai: Name", "`writer` is called `author`", "writer", [('name="writer"', 'name="author"')],
        (ASKED, Expected("unclaimed", "breaks", status="waiting")),
    ),
    *change(
        "pydantic-ai: Parameter of a tool", "`cents` is called `amount`", "writer",
        [("cents: int", "amount: int"), ("paid {cents}", "paid {amount}")],
        (ASKED, breaks("pay(", "the end of the turn")), (TURNED, goes_on()),
    ),
]  # fmt: skip

SDK = [
    *_of_both(
        "speaker", "OpenAI Agents",
        [
            ("Model", "`large`, not `small`", [('model = "small"', 'model = "large"')], ""),
            ("Prompt", "other instructions", [("Be brief.", "Be very brief.")], _NOTED),
            ("Tools", "one more", [("toolset(look, pay)", "toolset(look, listen, pay)")], _NOTED),
            ("Tools", "`look`, which it has called, is gone", [("toolset(look, pay)", "toolset(pay)")], _NOTED),
            ("Description of a tool", "of `pay`", [('"""Pay."""', '"""Pay at once."""')], ""),
            ("Output", "a model, not a `str`",
                [("instructions=", "output_type=Report, instructions="),
                    ('LAST = "all is done"', "LAST = '{\"said\": \"all\"}'")], _NOTED),
            ("Effect of a plain tool", "`note` is *external*",
                [('effects={"note": "idempotent"}', 'effects={"note": "external"}')], ""),
            ("What a model says next", "another text", [('LAST = "all is done"', 'LAST = "done"')], ""),
        ],
    ),
    *change(
        "OpenAI Agents: Output", "a model, not a `str`", "speaker",
        [("instructions=", "output_type=Report, instructions=")],
        (ENDED, goes_on(status="failed", says="It has ended as it is recorded; what the model has said does not fit.")),
    ),
    *change(
        "OpenAI Agents: Tools", "`pay`, which it has called, is gone", "speaker",
        [("toolset(look, pay)", "toolset(look)")],
        (ASKED, breaks("pay(", "the end of the turn")), (PENDING, breaks("pay(", "the end of the turn")),
        (TURNED, goes_on()),
    ),
    *change(
        "OpenAI Agents: Name", "`speaker` is called `author`", "speaker", [('name="speaker"', 'name="author"')],
        (ASKED, Expected("unclaimed", "breaks", status="waiting")),
    ),
    *change(
        "OpenAI Agents: Parameter of a tool", "`cents` is called `amount`", "speaker",
        [("cents: int", "amount: int"), ("paid {cents}", "paid {amount}")],
        (ASKED, breaks("pay(", "the end of the turn")), (TURNED, goes_on()),
    ),
]  # fmt: skip

CASES = [*PYDANTIC, *SDK, *(case for one in OLDER for case in _older(one))]
