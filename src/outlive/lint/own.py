"""Which code is the user's own, and what of it a call leads into."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FunctionType

from outlive.lint.known import ABSENT, UNKNOWN, Known, function_of, member, unwrapped
from outlive.lint.names import Names

_INSTALLED = ("site-packages", "dist-packages")


@lru_cache(maxsize=1024)
def is_library(file: str) -> bool:
    """Whether a file was installed, or belongs to Python."""
    path = Path(file)
    if file.startswith("<") or any(part in _INSTALLED for part in path.parts):
        return True
    standard = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    return any(path.resolve().is_relative_to(one) for one in standard)


@dataclass(frozen=True, slots=True)
class Own:
    """Code of the packages that agents and tools are in, wherever those are, and code that is not installed."""

    packages: frozenset[str]
    names: Names

    @classmethod
    def of(cls, functions: Iterable[object], names: Names) -> Own:
        """The packages that define these functions are the user's."""
        found = {str(getattr(one, "__module__", "")).partition(".")[0] for one in functions}
        return cls(frozenset(found - {"", "outlive"} - sys.stdlib_module_names | (found & {"__main__"})), names)

    def has(self, fn: FunctionType) -> bool:
        """Whether a function is the user's."""
        # Where it was written: what wraps another function has taken its name and module over.
        package, file = str(fn.__globals__.get("__name__", "")).partition(".")[0], fn.__code__.co_filename
        # What was made of no file, as the __init__ of a dataclass, holds nothing that its author has written.
        if package == "outlive" or (file.startswith("<") and not linecache.getlines(file)):
            return False
        return package in self.packages or not is_library(file)

    def reached(self, called: Known) -> Iterator[tuple[FunctionType, Known]]:
        """The user's functions that a call runs, and what their first parameter is bound to, where that is known."""
        live, of = called.live, called.of or UNKNOWN
        if isinstance(live, functools.partial):
            yield from self.reached(Known(live=live.func))
            return
        if isinstance(live, type):
            yield from self._made(live)
            return
        if live is ABSENT or inspect.ismodule(live):
            return
        fn, bound = function_of(live)
        if fn is None:
            yield from self._other(live, of)
            return
        of = of if bound is ABSENT else Known(live=bound, shared=True)
        if self.has(fn):
            yield fn, of
        elif (inner := unwrapped(fn)) is not fn:
            yield from self.reached(Known(live=inner, of=called.of))

    def _other(self, live: object, of: Known) -> Iterator[tuple[FunctionType, Known]]:
        """Of what is wrapped by no function (`lru_cache`), or is an object that can be called."""
        inner = unwrapped(live)
        if isinstance(inner, FunctionType):
            yield from self.reached(Known(live=inner, of=of))
        elif callable(live) and not isinstance(live, type):
            call = member(Known(live=live, shared=True), "__call__", self.names)
            if isinstance(call.live, FunctionType) and self.has(call.live):
                yield call.live, call.of or UNKNOWN

    def _made(self, cls: type) -> Iterator[tuple[FunctionType, Known]]:
        """What making an instance runs."""
        for name in ("__new__", "__init__", "__post_init__", "model_post_init"):
            found = inspect.getattr_static(cls, name, None)
            if isinstance(found, FunctionType) and self.has(found):
                yield found, Known(live=cls) if name == "__new__" else Known(kind=cls)


def factories(cls: type) -> dict[str, object]:
    """By field of a dataclass or a pydantic model: what makes its value where none is given."""
    found: dict[str, object] = {}
    for attribute in ("__dataclass_fields__", "__pydantic_fields__"):
        fields = inspect.getattr_static(cls, attribute, None)
        for name, one in fields.items() if isinstance(fields, dict) else ():
            made = getattr(one, "default_factory", None)
            if callable(made):
                found[str(name)] = made
    return found
