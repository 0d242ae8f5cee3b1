"""Two releases of an application: a module as it is, and with some of its text replaced, both in one process."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from outlive import Outlive
from outlive.app.registry import Registry
from tests.gate.case import Edit

APPS = Path(__file__).parent / "apps"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Release:
    """What a worker of it serves, and what its module says of the world outside."""

    registry: Registry
    module: ModuleType

    @property
    def deps(self) -> object:
        """What its tools work with, opened anew."""
        made: Callable[[], object] | None = getattr(self.module, "deps", None)
        return made() if made is not None else None

    @property
    def agent(self) -> str:
        """Which agent the runs are of."""
        return cast(str, getattr(self.module, "AGENT", None) or next(iter(self.registry.agents)))

    @property
    def input(self) -> object:
        """What a run of it is given."""
        return getattr(self.module, "INPUT", "Ada")

    def says(self, what: str) -> dict[str, str]:
        """What is said to its runs, as JSON: its MESSAGES by topic, ANSWERS by question, OUTCOMES by tool."""
        return cast("dict[str, str]", getattr(self.module, what, {}))


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The text with its edits. Raises AssertionError for one that is not there, or more often than once."""
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def load(app: str, edits: Sequence[Edit], directory: Path) -> Release:
    """A release of an application of this corpus, from a file of its own in that directory."""
    path = APPS / f"{app}.py"
    if edits:
        there = directory / f"{next(_numbers)}"
        there.mkdir(parents=True)
        text = edited(path.read_text("utf-8"), edits)
        path = there / f"{app}.py"
        path.write_text(text, "utf-8")
    name = f"gate_{app}_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # models look there for what their annotations mean
    spec.loader.exec_module(module)
    app_object = module.app
    assert isinstance(app_object, Outlive)
    return Release(app_object.registry, module)
