"""Whatever is written comes back equal, or is refused with a reason; signatures by annotation."""

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Generic, Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, computed_field
from typing_extensions import TypedDict

from outlive.log.codec import Codec, NotDigested, Signature, codec_of
from outlive.model.errors import BadArguments, NotSerialisable, SecretInSignature, UndecodableEntry

if TYPE_CHECKING:
    from collections.abc import Hashable as Skipped

T = TypeVar("T")


class Colour(Enum):
    RED = 1
    BLUE = "b"


class Mood(StrEnum):
    GOOD = "good"


class Level(IntEnum):
    LOW = 1


class Animal(BaseModel):
    name: str


class Cat(Animal):
    lives: int = 9


class Approved(BaseModel):
    reason: str = ""


class Rejected(BaseModel):
    reason: str = ""


class Blob(BaseModel):
    data: bytes
    below: "Blob | None" = None


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    at: datetime
    items: tuple[int, ...]
    blob: Blob


class Aliased(BaseModel):
    cents: int = Field(alias="amountCents")

    @computed_field
    def euros(self) -> float:
        return self.cents / 100


class Private(BaseModel):
    x: int
    _lock: object = PrivateAttr(default_factory=object)


class Box(BaseModel, Generic[T]):
    held: T


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"


class Payment(BaseModel):
    how: Annotated[Card | Cash, Field(discriminator="kind")]


@dataclasses.dataclass
class Line:
    price: Decimal
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class LongLine(Line):
    more: int = 0


@dataclasses.dataclass
class Ok:
    value: int


@dataclasses.dataclass
class Err:
    value: int


class Address(TypedDict):
    street: str
    raw: bytes


class Point(NamedTuple):
    x: int
    y: Decimal


class Add(BaseModel):
    left: "Add | Mul | int"
    right: "Add | Mul | int"


class Mul(BaseModel):
    left: "Add | Mul | int"
    right: "Add | Mul | int"


Add.model_rebuild()
Mul.model_rebuild()

EAST = timezone(timedelta(hours=5, minutes=30))
GIVEN_BACK: list[tuple[object, object]] = [
    (Animal, Animal(name="x")),
    (Blob, Blob(data=b"\xff\x00", below=Blob(data=b"abc"))),
    (Strict, Strict(at=datetime(2026, 1, 1, tzinfo=EAST), items=(1, 2), blob=Blob(data=b"\xfe"))),
    (Aliased, Aliased(amountCents=4200)),
    (Private, Private(x=1)),
    (Box[Decimal], Box[Decimal](held=Decimal("1.10"))),
    (Box[Approved | Rejected], Box[Approved | Rejected](held=Rejected(reason="no"))),
    (Payment, Payment(how=Cash())),
    (Approved | Rejected, Approved(reason="x")),
    (Approved | Rejected, Rejected(reason="x")),
    (Ok | Err, Err(3)),
    (list[Ok | Err], [Ok(1), Err(1)]),
    (Ok | Err | None, None),
    (Add | Mul | int, Mul(left=Add(left=1, right=2), right=Mul(left=3, right=4))),
    (Line, Line(Decimal("42.00"), ["a"])),
    (Address, {"street": "s", "raw": b"\x80"}),
    (Point, Point(1, Decimal("2.0"))),
    (datetime | str, "2026-01-01T00:00:00"),
    (datetime | str, datetime(2026, 1, 1)),
    (Decimal | str, Decimal("1.0")),
    (Decimal | str, "1.0"),
    (bytes | str, "aa"),
    (bytes | str, b"aa"),
    (uuid.UUID | str, str(uuid.UUID(int=3))),
    (list[int] | set[int], {1}),
    (Mood | str, Mood.GOOD),
    (Mood | str, "good"),
    (Level | int, Level.LOW),
    (int | float, 1.0),
    (int | float, 1),
    (int | bool, True),
    (dict[str, str] | Approved, {"$type": "Approved", "value": "x"}),
    (dict[tuple[int, int], str], {(1, 2): "a"}),
    (dict[Colour, int], {Colour.RED: 1, Colour.BLUE: 2}),
    (dict[int | str, int], {1: 1, "1": 2}),
    (dict[bytes, int], {b"\xff": 2}),
    (dict[date, int], {date(2026, 1, 1): 2}),
    (dict[bool, int], {True: 2}),
    (dict[float, int], {1.5: 2}),
    (Literal["a", 1], 1),
    (None, None),
    (datetime, datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))),
    (time, time(1, 2, 3, 4)),
    (int, 10**4000),
    (timedelta, timedelta(microseconds=-1)),
    (timedelta, timedelta.max),
    (object, {"a": [1, None, 1.5, "x"]}),
]


@pytest.mark.parametrize(("annotation", "value"), GIVEN_BACK)
def test_what_is_written_comes_back(annotation: object, value: object) -> None:
    codec = codec_of(annotation)
    back = codec.decode(codec.encode(value, where="test"), where="test")
    assert type(back) is type(value)
    if not isinstance(value, Private | datetime):
        assert back == value
    if isinstance(value, datetime) and isinstance(back, datetime):
        assert back.isoformat() == value.isoformat()


def test_members_of_a_union_that_look_alike_keep_their_classes() -> None:
    codec = codec_of(list[Ok | Err])
    back = codec.decode(codec.encode([Ok(1), Err(1)], where="test"), where="test")
    assert [type(one) for one in back] == [Ok, Err] if isinstance(back, list) else False
    assert codec_of(Ok | Err).encode(Ok(1), where="test") == '{"value":1}'
    assert codec_of(Ok | Err).encode(Err(1), where="test") == '{"$type":"Err","value":{"value":1}}'


REFUSED: list[tuple[object, object, str]] = [
    (float, float("nan"), "nan is not a finite number"),
    (float | None, float("inf"), "inf is not a finite number"),
    (list[float], [1.0, float("nan")], r"list\[float\]\[1\] .*nan is not"),
    (dict[float, int], {float("inf"): 1}, "inf is not"),
    (Decimal, Decimal("NaN"), "NaN is not"),
    (str, "a\0b", "NUL"),
    (Animal, Animal(name="\0"), r"Animal\.name .*NUL"),
    (dict[str, int], {"\0": 1}, "NUL"),
    (str, "\ud800", "lone surrogate"),
    (list[Animal], [Animal(name="a"), Animal(name="\udfff")], r"\[1\]\.name .*lone surrogate"),
    (Animal, Cat(name="c"), "a Cat would come back as Animal"),
    (list[Animal], [Cat(name="c")], r"a Cat would come back as Animal at \[0\]"),
    (Line, LongLine(Decimal(1)), "a LongLine would come back as Line"),
    (int, "x", "int"),
    (Animal, {"name": "x"}, "Animal"),
    (Animal, Animal.model_construct(name=3), "Animal"),
    (object, Decimal(1), "a Decimal would come back as str"),
    (object, object(), "object"),
    (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=30))), "come back changed"),
]


@pytest.mark.parametrize(("annotation", "value", "why"), REFUSED)
def test_what_would_be_lost_is_refused(annotation: object, value: object, why: str) -> None:
    with pytest.raises(NotSerialisable, match=why) as caught:
        codec_of(annotation).encode(value, where="step find")
    assert caught.value.where == "step find"


def test_a_number_that_python_itself_does_not_read_is_refused() -> None:
    with pytest.raises(NotSerialisable, match="int cannot be stored"):
        codec_of(int).encode(10**5000, where="test")


def test_a_cycle_is_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(NotSerialisable):
        codec_of(list[object]).encode(cycle, where="test")


def test_a_written_backslash_is_not_a_nul() -> None:
    text = Codec[str].of(str).encode("\\u0000", where="test")
    assert Codec[str].of(str).decode(text, where="test") == "\\u0000"


@pytest.mark.parametrize("text", ["", "{", '{"name": 3}', "null", "[]", "1" * 5000])
def test_what_cannot_be_read_names_the_entry(text: str) -> None:
    with pytest.raises(UndecodableEntry, match="entry 7") as caught:
        Codec[Animal].of(Animal).decode(text, where="entry 7")
    assert caught.value.where == "entry 7"


def test_errors_do_not_show_values() -> None:
    with pytest.raises(UndecodableEntry) as caught:
        Codec[int].of(int).decode('"hunter2-canary"', where="entry 7")
    assert "canary" not in str(caught.value)
    with pytest.raises(NotSerialisable, match="it is not a int") as refused:
        codec_of(int).encode("hunter2-canary", where="step find")
    assert "canary" not in str(refused.value)


def test_an_annotation_without_a_data_form_is_refused() -> None:
    with pytest.raises(NotSerialisable, match="no data form"):
        codec_of(BytesWriter)


class BytesWriter:
    pass


def test_a_codec_is_made_once() -> None:
    assert codec_of(list[Animal]) is codec_of(list[Animal])


TEXT = st.text(
    st.characters(exclude_characters="\0", categories=["L", "M", "N", "P", "S", "Z", "Cc", "Cf", "Co", "Cn"])
)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
AWARE = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=OFFSETS)
KINDS: dict[object, st.SearchStrategy[object]] = {
    str: TEXT,
    bytes: st.binary(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    datetime: st.datetimes() | AWARE,
    date: st.dates(),
    timedelta: st.timedeltas(),
    uuid.UUID: st.uuids(),
    Colour: st.sampled_from(Colour),
    Blob: st.recursive(
        st.builds(Blob, data=st.binary(), below=st.none()),
        lambda below: st.builds(Blob, data=st.binary(), below=below),
        max_leaves=4,
    ),
    bytes | str | None | int: st.binary() | TEXT | st.none() | st.integers(),
    Approved | Rejected: st.builds(Approved, reason=TEXT) | st.builds(Rejected, reason=TEXT),
    frozenset[bytes]: st.frozensets(st.binary()),
    tuple[int, str]: st.tuples(st.integers(), TEXT),
    dict[Decimal | str, list[date | datetime]]: st.dictionaries(
        st.decimals(allow_nan=False, allow_infinity=False) | TEXT, st.lists(st.dates() | st.datetimes())
    ),
}


@given(st.sampled_from(list(KINDS)).flatmap(lambda kind: st.tuples(st.just(kind), KINDS[kind])))
def test_every_kind_comes_back(case: tuple[object, object]) -> None:
    codec = codec_of(case[0])
    back = codec.decode(codec.encode(case[1], where="test"), where="test")
    assert back == case[1]
    assert type(back) is type(case[1])


async def charge(run: "Skipped", invoice: str, /, cents: int, *, at: Decimal = Decimal("1.0")) -> Animal:
    raise NotImplementedError


def signature() -> Signature:
    return Signature.of(charge, skip=1, where="tool charge")


def test_arguments_are_bound_by_annotation() -> None:
    bound = signature().bind(("i",), {"cents": 4200})
    assert bound == {"invoice": "i", "cents": 4200, "at": Decimal("1.0")}
    assert signature().spread(bound) == (["i", 4200], {"at": Decimal("1.0")})
    assert signature().decode(signature().encode(bound), where="x") == bound
    assert signature().encode(bound) == '{"invoice":"i","cents":4200,"at":"1.0"}'


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        (("i",), {}, "cents is missing"),
        ((), {}, "invoice is missing"),
        (("i", 1, 2), {}, "2 positional arguments, got 3"),
        (("i", 1), {"cents": 1}, "cents twice"),
        ((), {"invoice": "i", "cents": 1}, "invoice can only be given by position"),
        (("i", 1), {"colour": 1}, "no parameter colour"),
        (("i", "x"), {}, "cents: Input should be a valid integer"),
        ((1, 1), {}, "invoice: Input should be a valid string"),
    ],
)
def test_what_does_not_fit_is_named(args: tuple[object, ...], kwargs: dict[str, object], why: str) -> None:
    with pytest.raises(BadArguments, match=why) as caught:
        signature().bind(args, kwargs)
    assert caught.value.function == "tool charge"


def test_an_added_parameter_takes_its_default_from_old_text() -> None:
    assert signature().decode('{"invoice":"i","cents":1}', where="x")["at"] == Decimal("1.0")
    with pytest.raises(UndecodableEntry):
        signature().decode('{"invoice":"i"}', where="x")


def test_a_signature_is_made_once_and_result_has_its_codec() -> None:
    assert signature() is signature()
    assert signature().result.decode('{"name":"x"}', where="x") == Animal(name="x")


def made(source: str) -> Callable[..., object]:
    """A function that a type checker would refuse."""
    space: dict[str, Callable[..., object]] = {}
    exec(source, globals(), space)
    return space["f"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def f(x): ...", "the parameter x has no annotation"),
        ("def f(x: int): ...", "its result has no annotation"),
        ("def f(*args: int) -> None: ...", r"\*args: every parameter must have a name"),
        ("def f(**more: int) -> None: ...", "more: every parameter must have a name"),
        ("def f(x: 'Nowhere') -> None: ...", "Nowhere"),
        ("def f(x: int = 'a') -> None: ...", "the default of x does not fit"),
    ],
)
def test_signatures_that_cannot_be_durable_are_refused(source: str, why: str) -> None:
    with pytest.raises(BadArguments, match=why):
        Signature.of(made(source), skip=0, where="tool f")


class HoldsSecret(BaseModel):
    deep: list[dict[str, SecretStr]]


class Recursive(BaseModel):
    more: "list[Recursive]"
    secret: Annotated[SecretStr | None, Field()] = None


@dataclasses.dataclass
class HoldsSecretToo:
    inner: HoldsSecret


class SecretTyped(TypedDict):
    token: SecretStr


@pytest.mark.parametrize(
    "annotation",
    [
        "SecretStr",
        "Annotated[SecretStr, 1]",
        "int | None | SecretStr",
        "dict[str, list[HoldsSecret]]",
        "HoldsSecretToo",
        "Recursive",
        "SecretTyped",
        "Box[SecretStr]",
    ],
)
def test_secrets_in_a_signature_are_refused(annotation: str) -> None:
    with pytest.raises(SecretInSignature) as caught:
        Signature.of(made(f"def f(x: {annotation}) -> None: ..."), skip=0, where="tool f")
    assert (caught.value.function, caught.value.parameter) == ("tool f", "x")
    with pytest.raises(SecretInSignature) as caught:
        Signature.of(made(f"def f() -> {annotation}: ..."), skip=0, where="tool f")
    assert caught.value.parameter == "its result"


def marked(x: int, hint: Annotated[str, NotDigested], *, tags: list[str] = []) -> None:  # noqa: B006 - a mutable default is the case
    raise NotImplementedError


def either(x: Approved | Rejected) -> None:
    raise NotImplementedError


def test_the_digest_leaves_out_what_is_marked_and_what_is_default() -> None:
    of = Signature.of(marked, skip=0, where="step marked")
    assert of.digest_form(of.bind((1, "a"), {})) == b'c1:{"x":1}'
    assert of.digest_form(of.bind((1, "b"), {"tags": []})) == b'c1:{"x":1}'
    assert of.digest_form(of.bind((1, "b"), {"tags": ["t"]})) == b'c1:{"tags":["t"],"x":1}'


def test_the_digest_tells_look_alikes_apart() -> None:
    of = Signature.of(either, skip=0, where="step either")
    forms = {of.digest_form(of.bind((one,), {})) for one in (Approved(reason="x"), Rejected(reason="x"))}
    assert len(forms) == 2


def test_the_digest_is_the_same_before_and_after_storage() -> None:
    of = signature()
    bound = of.bind(("i", 3), {"at": Decimal("2.50")})
    assert of.digest_form(of.decode(of.encode(bound), where="x")) == of.digest_form(bound)


def test_utc_is_aware() -> None:
    codec = Codec[datetime].of(datetime)
    assert codec.decode(codec.encode(datetime(2026, 1, 1, tzinfo=UTC), where="x"), where="x").utcoffset() == timedelta(
        0
    )
