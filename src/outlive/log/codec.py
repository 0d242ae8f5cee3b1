"""Data-only JSON by annotation: what a log holds of arguments and results, and what comes back from it.

Whatever `encode` accepts, `decode` gives back as an equal value: it is decoded and compared before it is accepted.
Never pickle, never a module path. Naive datetimes are local times and stay naive; aware ones keep their instant and
offset, not the name of their zone. An instance of a subclass that would lose its class is refused.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Generic, ParamSpec, TypeVar, cast, get_args, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import BaseModel, PydanticUserError, Secret, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, SchemaError
from typing_extensions import TypeAliasType

from outlive.log.canonical import VERSION, Named, NotDigested, fragment
from outlive.log.schema import Compiled, Schema, core_schema, differences, parts, same
from outlive.model.errors import BadArguments, NotSerialisable, SecretInSignature, UndecodableEntry

__all__ = ["Codec", "NotDigested", "Parameter", "Signature", "holds_secret"]

T = TypeVar("T")
P = ParamSpec("P")
_SECRETS = (Secret, SecretStr, SecretBytes)
_WRITE_ERRORS = (PydanticSerializationError, ValueError, TypeError, AttributeError, RecursionError)
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_MISSING = object()
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Codec(Generic[T]):
    """Reads and writes the values of one annotation. Making one costs up to a millisecond: use `Codec.of`."""

    __slots__ = ("_read", "_write", "annotation", "name")

    def __init__(self, annotation: object, *, where: str = "codec") -> None:
        self.annotation, self.name = annotation, _name(annotation)
        self._assemble(Compiled(_schema(annotation, where)))

    def _assemble(self, compiled: Compiled) -> None:
        self._read, self._write = compiled.validator.validate_json, compiled.serializer.to_json

    @classmethod
    def of(cls, annotation: type[T]) -> Codec[T]:
        """The codec of an annotation, kept for the next caller. Raises NotSerialisable for one that holds no data."""
        return cast(Codec[T], codec_of(annotation))

    def encode(self, value: T, *, where: str) -> str:
        """JSON text that `decode` gives back as an equal value, or NotSerialisable."""
        return self.record(value, where=where)[0]

    def record(self, value: T, *, where: str) -> tuple[str, T]:
        """The text, and the value as a replay will see it."""
        try:
            text = self._write(value, by_alias=False, round_trip=True, warnings="error").decode()
            back: T = self._read(text, by_alias=False, by_name=True)
        except ValidationError as error:
            raise self._refusal(value, where, f"what is written could not be read: {_problems(error)}") from None
        except _WRITE_ERRORS as error:
            raise self._refusal(value, where, _trouble(error)) from None
        if "\\u0000" in text and _NUL.search(text):
            raise self._refusal(value, where, "it holds a NUL character")
        if not same(value, back):
            raise self._lost(value, back, where)
        return text, back

    def decode(self, text: str, *, where: str) -> T:
        """The value of a text, or UndecodableEntry."""
        try:
            value: T = self._read(text, by_alias=False, by_name=True)
        except ValidationError as error:
            raise UndecodableEntry(where=where, why=f"not a {self.name}: {_problems(error)}") from None
        except (ValueError, RecursionError) as error:
            raise UndecodableEntry(where=where, why=f"not a {self.name}: {error}") from None
        return value

    def _refusal(self, value: object, where: str, why: str) -> NotSerialisable:
        with suppress(RecursionError):
            for path, reason in _unwritable(value, set()):
                return NotSerialisable(what=self.name + path, where=where, why=reason)
        return NotSerialisable(what=self.name, where=where, why=why)

    def _lost(self, value: object, back: object, where: str) -> NotSerialisable:
        path, one, other = next(differences(value, back), ("", value, back))
        has, gets = type(one).__name__, type(other).__name__
        became = f"a {has} would come back as {gets}" if has != gets else f"this {has} would come back changed"
        return self._refusal(value, where, f"{became}{' at ' + path if path else ''}; annotate what it really is")


@lru_cache(maxsize=1024)
def _cached(annotation: object) -> Codec[object]:
    return Codec(annotation)


def codec_of(annotation: object) -> Codec[object]:
    """`Codec.of` for annotations that are not classes: unions, literals, aliases."""
    try:
        hash(annotation)
    except TypeError:
        return Codec(annotation)
    return _cached(annotation)


def _schema(annotation: object, where: str) -> Schema:
    try:
        return core_schema(annotation)
    except (PydanticUserError, SchemaError, NameError, TypeError) as error:
        why = str(error).splitlines()[0]
    raise NotSerialisable(what=_name(annotation), where=where, why=f"pydantic knows no data form of it: {why}")


def _unwritable(value: object, seen: set[int], path: str = "") -> Iterator[tuple[str, str]]:
    """Scalars that JSON, or a database, has no place for."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, f"{value} is not a finite number"
    elif isinstance(value, Decimal) and not value.is_finite():
        yield path, f"{value} is not a finite number"
    elif isinstance(value, str) and "\0" in value:
        yield path, "it holds a NUL character"
    elif isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        yield path, "it holds a lone surrogate, which is not text"
    elif id(value) not in seen:
        seen.add(id(value))
        for name, part in parts(value).items():
            yield from _unwritable(part, seen, path + name)
        for key in value if isinstance(value, Mapping) else ():
            yield from _unwritable(key, seen, f"{path} (a key)")


def _problems(error: ValidationError) -> str:
    """What pydantic found, without the values: they may be confidential."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [": ".join(filter(None, (".".join(map(str, one["loc"])), one["msg"]))) for one in found[:3]]
    return "; ".join(shown) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def _trouble(error: Exception) -> str:
    expected = re.search(r"Expected `([^`]+)`", str(error))
    return f"it is not a {expected[1]}" if expected else str(error) or type(error).__name__


def _name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else re.sub(r"\b(?:\w+\.)+(?=\w)", "", repr(annotation))


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """One durable parameter; `default_form` is the canonical form of its default, None where it has none."""

    name: str
    annotation: object
    kind: inspect._ParameterKind
    default: object
    default_form: str | None
    digested: bool

    @property
    def required(self) -> bool:
        return self.default_form is None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """A function's durable parameters and its result, by annotation.

    Arguments travel as a dict by parameter name, defaults filled in. `bind` gives them validated; the other methods
    take what `bind` or `decode` gave.
    """

    function: str
    parameters: tuple[Parameter, ...]
    result: Codec[object]
    _arguments: Codec[dict[str, object]]
    _validate: Callable[[object], object]
    _positional: tuple[str, ...]
    _defaults: dict[str, object]
    _digested: tuple[Parameter, ...]
    _named: Named

    @classmethod
    def of(cls, fn: Callable[P, object], *, skip: int, where: str) -> Signature:
        """The signature of `fn` without its first `skip` parameters; `where` names the function in errors.

        Raises BadArguments for a missing annotation, `*args`, `**kwargs` or a default that does not fit,
        SecretInSignature for a secret type anywhere in it, NotSerialisable for an annotation that holds no data.
        """
        known = _signatures.setdefault(fn, {})
        if (skip, where) not in known:
            known[skip, where] = _signature(fn, skip, where)
        return known[skip, where]

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Arguments by name, validated and normalised by annotation; BadArguments names what does not fit."""
        given = {**self._defaults, **dict(zip(self._positional, args, strict=False)), **kwargs}
        if len(args) > len(self._positional) or len(given) != len(self.parameters) or kwargs:
            self._check_names(args, kwargs)
        try:
            return cast(dict[str, object], self._validate(given))
        except ValidationError as error:
            raise BadArguments(function=self.function, why=_problems(error)) from None

    def encode(self, arguments: dict[str, object]) -> str:
        """A JSON object by parameter name, or NotSerialisable."""
        return self._arguments.encode(arguments, where=self.function)

    def decode(self, text: str, *, where: str) -> dict[str, object]:
        """What `encode` wrote; a parameter that was added since, with a default, has its default."""
        return {**self._defaults, **self._arguments.decode(text, where=where)}

    def digest_form(self, arguments: dict[str, object]) -> bytes:
        """The canonical form without what is `NotDigested` and what equals its parameter's default."""
        shown: list[str] = []
        for parameter in self._digested:
            form = fragment(arguments[parameter.name], named=self._named, where=self.function)
            if form != parameter.default_form:
                shown.append(f'"{parameter.name}":{form}')
        return VERSION + f"{{{','.join(shown)}}}".encode()

    def spread(self, arguments: dict[str, object]) -> tuple[list[object], dict[str, object]]:
        """The arguments as the function is called with them, after those that were skipped."""
        positional = [arguments[name] for name in self._positional]
        return positional, {p.name: arguments[p.name] for p in self.parameters if p.name not in self._positional}

    def _check_names(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if len(args) > len(self._positional):
            why = f"takes {len(self._positional)} positional arguments, got {len(args)}"
            raise BadArguments(function=self.function, why=why)
        by_position = self._positional[: len(args)]
        for parameter in self.parameters:
            name, by_name = parameter.name, parameter.name in kwargs
            if by_name and name in by_position:
                raise BadArguments(function=self.function, why=f"got {name} twice")
            if by_name and parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                raise BadArguments(function=self.function, why=f"{name} can only be given by position")
            if parameter.required and not by_name and name not in by_position:
                raise BadArguments(function=self.function, why=f"{name} is missing")
        unexpected = kwargs.keys() - {parameter.name for parameter in self.parameters}
        if unexpected:
            raise BadArguments(function=self.function, why=f"has no parameter {', '.join(sorted(unexpected))}")


_signatures: WeakKeyDictionary[object, dict[tuple[int, str], Signature]] = WeakKeyDictionary()


def _signature(fn: Callable[P, object], skip: int, where: str) -> Signature:
    plain = inspect.unwrap(fn)
    declared = list(inspect.signature(plain).parameters.values())[skip:]
    hints = _hints(plain, [one.name for one in declared], where)
    for name, annotation in hints.items():
        if holds_secret(annotation):
            raise SecretInSignature(function=where, parameter="its result" if name == "return" else name)
    schemas = {one.name: _schema(hints[one.name], where) for one in declared}
    compiled = Compiled(_arguments_schema(declared, schemas))
    parameters = tuple(_parameter(one, hints[one.name], compiled.named, where) for one in declared)
    arguments: Codec[dict[str, object]] = Codec.__new__(Codec)
    arguments.annotation, arguments.name = dict, "arguments"
    arguments._assemble(compiled)
    return Signature(
        function=where,
        parameters=parameters,
        result=codec_of(hints["return"]),
        _arguments=arguments,
        _validate=compiled.validator.validate_python,
        _positional=tuple(one.name for one in parameters if one.kind in _POSITIONAL),
        _defaults={one.name: one.default for one in parameters if not one.required},
        _digested=tuple(sorted((one for one in parameters if one.digested), key=lambda one: one.name)),
        _named=compiled.named,
    )


def _arguments_schema(declared: list[inspect.Parameter], schemas: dict[str, Schema]) -> Schema:
    fields: dict[str, Schema] = {
        one.name: {
            "type": "typed-dict-field",
            "schema": schemas[one.name],
            "required": one.default is inspect.Parameter.empty,
        }
        for one in declared
    }
    return {"type": "typed-dict", "fields": fields, "extra_behavior": "forbid"}


def _hints(fn: Callable[P, object], names: list[str], where: str) -> dict[str, object]:
    """Only what is durable is resolved: a skipped parameter may be annotated for type checkers alone."""
    written: dict[str, object] = getattr(fn, "__annotations__", {})
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise BadArguments(function=where, why=f"*{parameter.name}: every parameter must have a name")
    for name in [*names, "return"]:
        if name not in written:
            what = "its result" if name == "return" else f"the parameter {name}"
            raise BadArguments(function=where, why=f"{what} has no annotation")
    asked = types.SimpleNamespace(__annotations__={name: written[name] for name in [*names, "return"]})
    try:
        return get_type_hints(asked, globalns=getattr(fn, "__globals__", {}), include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise BadArguments(function=where, why=f"an annotation cannot be resolved: {error}") from None


def _parameter(one: inspect.Parameter, annotation: object, named: Named, where: str) -> Parameter:
    marks = getattr(annotation, "__metadata__", ())
    digested = not any(mark is NotDigested or isinstance(mark, NotDigested) for mark in marks)
    if one.default is inspect.Parameter.empty:
        return Parameter(one.name, annotation, one.kind, _MISSING, None, digested)
    adapter = TypeAdapter(cast(type[object], annotation))
    try:
        default = adapter.validate_python(one.default)
    except ValidationError as error:
        raise BadArguments(function=where, why=f"the default of {one.name} does not fit: {_problems(error)}") from None
    form = fragment(default, named=named, where=where)
    return Parameter(one.name, annotation, one.kind, one.default, form, digested)


def holds_secret(annotation: object) -> bool:
    """Whether a secret type is anywhere in an annotation: in containers, unions, fields of models and dataclasses."""
    seen: set[int] = set()
    left: list[object] = [annotation]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, type) and issubclass(one, _SECRETS):
            return True
        left += _below(one)
    return False


def _below(annotation: object) -> list[object]:
    below: list[object] = list(get_args(annotation))
    origin = typing.get_origin(annotation)
    if origin is not None:
        below.append(origin)
    if isinstance(annotation, TypeAliasType) or hasattr(annotation, "__value__"):
        below.append(getattr(annotation, "__value__", None))
    if isinstance(annotation, TypeVar):
        below += [annotation.__bound__, *annotation.__constraints__]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        below += [field.annotation for field in annotation.model_fields.values()]
    elif isinstance(annotation, type) and (hasattr(annotation, "__annotations__")):
        below += _field_types(annotation)
    return below


def _field_types(kind: type) -> list[object]:
    """Fields of a dataclass, TypedDict or NamedTuple; of another class what its author wrote."""
    try:
        return list(get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError, SyntaxError, AttributeError):
        return list(getattr(kind, "__annotations__", {}).values())
