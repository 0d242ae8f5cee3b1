"""Tools that get another effect: what is recorded goes on as it was begun, what is not as the tool is now."""

from tests.gate.case import Case, Edit, Expected, Stand, change, goes_on, same

_TOOL = "@app.tool()\n"
DONE = Stand("it has its outcome, and the run sleeps")
PENDING = Stand("its worker has died in it: it may have been sent", dies_in="act")
DOUBT = Stand("it is in doubt, and a person is asked", dies_in="act", found=True)
BEFORE = Stand("the run has not come to it", dies_after="step count")
ENDED = Stand("the run has ended", last=True)
EFFECTS = ("external", "idempotent", "read", "transactional")
# What may have acted is nobody's to repeat: a person says what became of it.
_ASKED = "A person is asked what became of it, because it was begun as *external*."
_AGAIN = "It is repeated under its key, as it was begun."


def _being(effect: str, instead_of: str) -> Edit:
    old = _TOOL if instead_of == "external" else f'@app.tool(effect="{instead_of}")\n'
    return old, f'@app.tool(effect="{effect}")\n'


def _pending(old: str) -> Expected:
    match old:
        case "external":
            return same(says=_ASKED)
        case "idempotent":
            return same(says=_AGAIN)
        case _:
            return goes_on(says="Nothing of it is recorded yet.")


def _changes() -> list[Case]:
    found = []
    for old in EFFECTS:
        for new in EFFECTS:
            if old == new:
                continue
            before = [] if old == "external" else [_being(old, "external")]
            places = [(DONE, same()), (PENDING, _pending(old)), (BEFORE, goes_on()), (ENDED, same())]
            if old == "external":
                places.append((DOUBT, same(says=_ASKED)))
            found += change(
                "Effect of a tool", f"*{old}* becomes *{new}*", "effects", [_being(new, old)], *places, before=before
            )
    return found


CASES = _changes()
