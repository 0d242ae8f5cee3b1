"""What objects are called by those who make them: `t` after `from time import time as t` is `time.time`.

Objects are compared, not spellings, so that neither an alias nor a method of the same name deceives.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from outlive.lint.rules import CALLS, GIVES, SAYS, VALUES

_KNOWN = frozenset({*CALLS, *SAYS, *GIVES})
_CALLABLE = (FunctionType, BuiltinFunctionType, MethodType, type)


class Names:
    """Names of the objects that rules are about, as far as their modules are loaded: nobody else can hold them."""

    def __init__(self) -> None:
        self._callables: dict[object, str] = {}
        self._values: dict[int, str] = {}
        for dotted in [*CALLS, *SAYS, *GIVES, *GIVES.values()]:
            self._learn(dotted)
        for dotted in VALUES:
            found = _find(dotted)
            if found is not None:
                self._values[id(found)] = dotted

    def of(self, thing: object) -> str:
        """Its name, empty where no rule is about it."""
        if id(thing) in self._values:
            return self._values[id(thing)]
        if not isinstance(thing, _CALLABLE):
            return ""
        if known := self._callables.get(thing):
            return known
        # A method of a class that was taken from it: `now = datetime.now`.
        of = getattr(thing, "__self__", None)
        return self.of_member(of, thing.__name__) if isinstance(of, type) else ""

    def of_class(self, cls: type) -> str:
        """The name of a class, the public one where a rule knows it."""
        return self._callables.get(cls) or f"{cls.__module__}.{cls.__qualname__}"

    def class_named(self, dotted: str) -> type | None:
        """The class of that name, where it is loaded."""
        found = _find(dotted)
        return found if isinstance(found, type) else None

    def of_member(self, cls: type, name: str) -> str:
        """What an attribute is called by the class that has it, empty where none has."""
        found = ""
        for one in cls.__mro__:
            found = f"{self.of_class(one)}.{name}"
            if found in _KNOWN:
                return found
            if name in vars(one):
                return found
        return ""

    def _learn(self, dotted: str) -> None:
        owner, _, last = dotted.rpartition(".")
        if last == "*":
            module = sys.modules.get(owner)
            for name in _public(module):
                self._learn(f"{owner}.{name}")
            return
        outer = _find(owner)
        if isinstance(outer, type):
            self._callables.setdefault(outer, owner)
            return
        found = _find(dotted)
        if isinstance(found, _CALLABLE):
            self._callables.setdefault(found, dotted)


def _public(module: ModuleType | None) -> Iterable[str]:
    if module is None:
        return ()
    # What a module has imported for itself is somebody else's.
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and isinstance(value, _CALLABLE)
        and not (isinstance(value, type) and issubclass(value, BaseException))
        and (getattr(value, "__module__", None) or module.__name__).partition(".")[0].lstrip("_")
        == module.__name__.partition(".")[0]
    ]  # fmt: skip


def _find(dotted: str) -> object:
    """The object of that name, where its module is loaded; nothing is imported."""
    words = dotted.split(".")
    for length in range(len(words), 0, -1):
        module = sys.modules.get(".".join(words[:length]))
        if module is None:
            continue
        found: object = module
        for word in words[length:]:
            found = inspect.getattr_static(found, word, None) if isinstance(found, type) else vars(found).get(word)
            if found is None:
                return None
            if not isinstance(found, type | ModuleType):
                break
        return found
    return None
