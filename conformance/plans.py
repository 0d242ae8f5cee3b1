"""Pieces of plans; README.md says what they mean."""

from __future__ import annotations

from typing import cast

Call = dict[str, object]

CHARGE: Call = {"cents": 100}
SHIP: Call = {"to": "Ada"}
MAIL: Call = {"text": "done"}
PAY: Call = {"cents": 7, "iban": "DE01"}


def call(act: str, args: dict[str, object] | None = None, **more: object) -> Call:
    """A call of the engine's that the service is asked for under the same name, unless `name` says another one."""
    name = str(more.pop("name", act))
    return {"call": name, "act": act, "args": args or {}, **more}


def charge(**more: object) -> Call:
    args = more.pop("args", CHARGE)
    assert isinstance(args, dict)
    return call("charge", args, **more)


def ship(**more: object) -> Call:
    return call("ship", dict(SHIP), **more)


def mail(**more: object) -> Call:
    return call("mail", dict(MAIL), **more)


def pay(**more: object) -> Call:
    args = more.pop("args", PAY)
    assert isinstance(args, dict)
    return call("pay", args, approval=True, **more)


def sleep(seconds: float) -> Call:
    return {"sleep": seconds}


def at_once(*calls: Call) -> Call:
    return {"all": list(calls)}


def fail(why: str) -> Call:
    return {"fail": why}


def acts(*calls: Call) -> list[tuple[str, dict[str, object]]]:
    """What these calls ask the service for."""
    found: list[tuple[str, dict[str, object]]] = []
    for one in calls:
        if "all" in one:
            found += acts(*cast("list[Call]", one["all"]))
        elif "act" in one:
            args = one["args"]
            assert isinstance(args, dict)
            found.append((str(one["act"]), args))
    return found
