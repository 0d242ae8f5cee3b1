"""How the bank misbehaves: the fate of each request, chosen by rule or by seed.

With one seed, the n-th charge request for an invoice always meets the same fate, in whatever order requests of
different invoices arrive.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, cast, get_args

Mode = Literal["act_then_drop", "act_then_delay", "delay_then_act", "refuse", "drop_before_act", "hold"]
Verb = Literal["charge", "lookup"]
Moment = Literal["before", "after"]


class BadControl(ValueError):
    """A rule or setting that the bank does not understand; the message names the field."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every request that no rule matches. The chances exclude each other and add up to at most 1."""

    seed: int = field(default=0, metadata={"help": "chooses which requests meet which fate"})
    drop: float = field(default=0.0, metadata={"help": "chance of act_then_drop"})
    drop_before: float = field(default=0.0, metadata={"help": "chance of drop_before_act"})
    refuse: float = field(default=0.0, metadata={"help": "chance of refuse"})
    delay: float = field(default=0.0, metadata={"help": "chance of act_then_delay"})
    delay_before: float = field(default=0.0, metadata={"help": "chance of delay_then_act"})
    delay_ms: int = field(default=200, metadata={"help": "length of such a delay in milliseconds"})
    lookup_lag_ms: int = field(default=0, metadata={"help": "a charge is invisible to look-ups for this long"})
    dedupe: bool = field(default=False, metadata={"help": "a repeated Idempotency-Key returns the first charge"})
    honour_not_after: bool = field(default=False, metadata={"help": "refuse to act after X-Not-After"})

    def __post_init__(self) -> None:
        for item in fields(self):
            _check_setting(item.name, getattr(self, item.name), item.default)
        chances = [chance for _, chance in self.chances()]
        if min(chances) < 0 or sum(chances) > 1:
            raise BadControl("drop, drop_before, refuse, delay and delay_before are chances that add up to at most 1")

    def chances(self) -> tuple[tuple[Mode, float], ...]:
        return (
            ("act_then_drop", self.drop),
            ("drop_before_act", self.drop_before),
            ("refuse", self.refuse),
            ("act_then_delay", self.delay),
            ("delay_then_act", self.delay_before),
        )


def _check_setting(name: str, value: object, default: object) -> None:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise BadControl(f"{name}: true or false, not {value!r}")
        return
    kinds = (int, float) if isinstance(default, float) else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise BadControl(f"{name}: a number, not {value!r}")
    if name.endswith("_ms") and cast(float, value) < 0:
        raise BadControl(f"{name}: 0 or more, not {value!r}")


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one request; `mode` None is an ordinary answer."""

    mode: Mode | None = None
    ms: int = 0
    when: Moment = "after"


@dataclass(slots=True)
class Rule:
    """Decides the next `times` requests that match (None: all of them). A field that is None matches anything."""

    mode: Mode
    on: Verb = "charge"
    invoice: str | None = None
    customer: str | None = None
    provider: str | None = None
    key: str | None = None
    times: int | None = 1
    ms: int = 200
    when: Moment = "after"

    def matches(self, on: Verb, facts: Mapping[str, str | None]) -> bool:
        if on != self.on or self.times == 0:
            return False
        wanted = {"invoice": self.invoice, "customer": self.customer, "provider": self.provider, "key": self.key}
        return all(value is None or facts.get(name) == value for name, value in wanted.items())

    def apply(self) -> Fate:
        if self.times is not None:
            self.times -= 1
        return Fate(self.mode, self.ms, self.when)


def parse_rule(raw: object) -> Rule:
    """Raise BadControl for anything but an object with the fields of Rule."""
    if not isinstance(raw, dict):
        raise BadControl(f"rule: an object, not {raw!r}")
    known = {item.name for item in fields(Rule)}
    if unknown := sorted(set(raw) - known):
        raise BadControl(f"rule: unknown field {unknown[0]!r}")
    for name, allowed in (("mode", Mode), ("on", Verb), ("when", Moment)):
        if (name == "mode" or name in raw) and raw.get(name) not in get_args(allowed):
            raise BadControl(f"rule: {name} is one of {', '.join(get_args(allowed))}, not {raw.get(name)!r}")
    for name in ("invoice", "customer", "provider", "key"):
        if not isinstance(raw.get(name), str | None):
            raise BadControl(f"rule: {name} is a string, not {raw[name]!r}")
    for name, least in (("times", 1), ("ms", 0)):
        value = raw.get(name, least)
        if not (type(value) is int and value >= least) and not (name == "times" and value is None):
            raise BadControl(f"rule: {name} is a whole number from {least} up, not {value!r}")
    return Rule(**raw)


def parse_settings(old: Settings, raw: object) -> Settings:
    """`old` with the fields of `raw` in place of its own; raises BadControl."""
    if not isinstance(raw, dict):
        raise BadControl(f"set: an object, not {raw!r}")
    values = {item.name: getattr(old, item.name) for item in fields(Settings)}
    if unknown := sorted(set(raw) - set(values)):
        raise BadControl(f"set: unknown field {unknown[0]!r}")
    return Settings(**{**values, **raw})


def fate_by_seed(settings: Settings, invoice: str, nth: int) -> Fate:
    digest = hashlib.blake2b(f"{settings.seed}/{invoice}/{nth}".encode(), digest_size=8).digest()
    point = int.from_bytes(digest, "big") / 2**64
    for mode, chance in settings.chances():
        if point < chance:
            return Fate(mode, settings.delay_ms)
        point -= chance
    return Fate()
