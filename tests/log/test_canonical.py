"""Equal values have equal bytes, other values other bytes, in every process and for ever."""

import dataclasses
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Annotated
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from outlive.log.canonical import NotDigested, canonical, digest
from outlive.model.errors import NotSerialisable


class Colour(Enum):
    RED = 1


class Mood(StrEnum):
    GOOD = "good"


class Order(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str
    tags: list[str] = Field(default_factory=list)
    rate: Decimal = Decimal("1.0")
    trace: Annotated[str, NotDigested] = ""
    drawn: list[int] = Field(default_factory=lambda: [1])


@dataclasses.dataclass
class Line:
    price: int
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    count: int = 1
    hint: Annotated[str, NotDigested] = ""


BERLIN = datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))

# Bytes of version c1. A line may be added, never changed: digests in stored logs were made from them.
GOLDEN: list[tuple[object, str]] = [
    (None, "null"),
    (True, "true"),
    (1, "1"),
    (1.0, "1.0"),
    (-0.0, "0.0"),
    (1e22, "1e+22"),
    (10**30, "1000000000000000000000000000000"),
    ("ä\n", r'"\u00e4\n"'),
    (b"\xff\x00", '{"$bytes":"/wA="}'),
    (Decimal("42.00"), '{"$decimal":"42E0"}'),
    (Decimal("4200"), '{"$decimal":"42E2"}'),
    (Decimal("-0.0"), '{"$decimal":"0"}'),
    (Decimal("-0.10"), '{"$decimal":"-1E-1"}'),
    (
        Decimal("1234567890123456789012345678901234567890.5"),
        '{"$decimal":"12345678901234567890123456789012345678905E-1"}',
    ),
    (datetime(2026, 1, 1, tzinfo=UTC), '{"$instant":1767225600000000}'),
    (BERLIN, '{"$instant":1767225600000000}'),
    (datetime(2026, 1, 1), '{"$local":"2026-01-01T00:00:00"}'),
    (date(2026, 1, 1), '{"$date":"2026-01-01"}'),
    (time(1, 2), '{"$time":"01:02:00"}'),
    (timedelta(seconds=-1), '{"$span":-1000000}'),
    (uuid.UUID(int=1), '{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
    (PurePosixPath("a/b"), '{"$path":"a/b"}'),
    (Colour.RED, "1"),
    (Mood.GOOD, '"good"'),
    ([1, (2, "x")], '[1,[2,"x"]]'),
    ({"b", "a"}, '{"$set":["a","b"]}'),
    ({"b": 1, "a": 2, "$set": 3}, '{"$$set":3,"a":2,"b":1}'),
    ({2: "b", 10: "a"}, '{"$map":[[10,"a"],[2,"b"]]}'),
    (Order(id="1"), '{"drawn":[1],"id":"1"}'),
    (
        Order.model_validate({"id": "1", "tags": ["t"], "rate": "1.00", "trace": "x", "extra": 1}),
        '{"drawn":[1],"extra":1,"id":"1","tags":["t"]}',
    ),
    (Line(3), '{"price":3}'),
    (Line(3, {"a": 1}, 2, "x"), '{"count":2,"notes":{"a":1},"price":3}'),
]


@pytest.mark.parametrize(("value", "form"), GOLDEN)
def test_the_bytes_of_a_version_never_change(value: object, form: str) -> None:
    assert canonical(value) == b"c1:" + form.encode()


def test_forms_differ_where_values_differ() -> None:
    values: list[object] = [
        "1",
        1,
        1.0,
        True,
        Decimal(1),
        [1],
        {1},
        b"1",
        {"1": 1},
        {1: 1},
        {"$set": [1]},
        {"$decimal": "1E0"},
    ]
    values += [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), "2026-01-01"]
    assert len({canonical(value) for value in values}) == len(values)


def test_classes_are_told_apart_only_where_asked() -> None:
    assert canonical(Line(3)) == canonical({"price": 3})
    assert canonical([Line(3)], named=frozenset({Line})) == b'c1:[{"$type":"Line","value":{"price":3}}]'


def test_a_default_is_not_left_out_for_a_look_alike() -> None:
    class Flags(BaseModel):
        on: list[object] = [1]

    assert canonical(Flags(on=[True])) == b'c1:{"on":[true]}'
    assert canonical(Flags(on=[1])) == b"c1:{}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("NaN"), Decimal("-Infinity"), object()])
def test_what_has_no_form_is_an_error(value: object) -> None:
    with pytest.raises(NotSerialisable) as caught:
        canonical({"deep": [value]}, where="step find")
    assert caught.value.where == "step find"


def test_a_cycle_is_an_error() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(NotSerialisable, match="contains itself"):
        canonical(cycle)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.integers(-840, 840), st.integers(-840, 840))
def test_one_instant_has_one_form_in_every_zone(naive: datetime, one: int, other: int) -> None:
    instant = naive.replace(tzinfo=timezone(timedelta(minutes=one)))
    moved = instant.astimezone(timezone(timedelta(minutes=other)))
    assert canonical(instant) == canonical(moved)


def test_an_hour_that_comes_twice_is_two_instants() -> None:
    zone = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=zone) for fold in (0, 1))
    assert canonical(first) != canonical(second)
    assert canonical(second) == canonical(second.astimezone(UTC))


@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_have_one_form_exactly_when_equal(one: Decimal, other: Decimal) -> None:
    assert (canonical(one) == canonical(other)) == (one == other)
    padded = Decimal((one.as_tuple().sign, (*one.as_tuple().digits, 0), int(one.as_tuple().exponent) - 1))
    assert canonical(one) == canonical(padded)


DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(DATA)
def test_the_order_of_keys_does_not_count(value: object) -> None:
    assert canonical(value) == canonical(reordered(value))


def reordered(value: object) -> object:
    if isinstance(value, dict):
        return MappingProxyType({key: reordered(item) for key, item in reversed(value.items())})
    return [reordered(item) for item in value] if isinstance(value, list) else value


def test_mappings_of_any_class_have_one_form() -> None:
    frozen: Mapping[str, int] = MappingProxyType({"a": 1})
    assert canonical(frozen) == canonical({"a": 1})


PROGRAM = """
from outlive.log.canonical import canonical
names = {f"name {n}" for n in range(50)}
print(canonical([names, {frozenset({n, n[::-1]}) for n in names}, {n: {n} for n in names}]).hex())
"""


def test_sets_have_one_form_under_every_hash_seed() -> None:
    forms = set()
    for seed in ("0", "1", "2", "3"):
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        forms.add(ran.stdout)
    assert len(forms) == 1


def test_a_digest_is_keyed_and_framed() -> None:
    assert digest(b"key", b"ab", b"c") == "6792a685701881d31208bf28ad5cbe35d0ea5cc4f15c4689af94fe1602c421e3"
    parts = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), ()]
    assert len({digest(b"key", *each) for each in parts}) == len(parts)
    assert digest(b"key", b"x") != digest(b"other", b"x")
