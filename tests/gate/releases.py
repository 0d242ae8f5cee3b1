"""Two releases of an application: a module as it is, and with some of its text replaced, both in one process."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import shutil
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
EXAMPLES = Path(__file__).parents[2]
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
    """A release of an application of this corpus, or of an example, from files of its own in that directory."""
    if app.startswith("examples."):
        return _example(app, edits, directory)
    path = APPS / f"{app}.py"
    return written(edited(path.read_text("utf-8"), edits), path, directory) if edits else imported(path)


def written(text: str, like: Path, directory: Path) -> Release:
    """A release that says this, in a file that is called as the one it was made of."""
    there = directory / f"{next(_numbers)}"
    there.mkdir(parents=True)
    (there / like.name).write_text(text, "utf-8")
    return imported(there / like.name)


def imported(path: Path) -> Release:
    """The file as a module that has a name of its own, so that it is there beside others of that file."""
    name = f"gate_{path.stem}_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # models look there for what their annotations mean
    spec.loader.exec_module(module)
    assert isinstance(module.app, Outlive)
    return Release(module.app.registry, module)


def _example(name: str, edits: Sequence[Edit], directory: Path) -> Release:
    """A copy of the examples, imported in the place of those that are there, which come back."""
    there = directory / f"{next(_numbers)}"
    package = name.replace(".", "/")
    shutil.copytree(EXAMPLES / package, there / package, ignore=shutil.ignore_patterns("__pycache__"))
    (there / "examples" / "__init__.py").write_text('"""Examples."""\n', "utf-8")
    for old, new in edits:
        files = [one for one in (there / package).glob("*.py") if old in one.read_text("utf-8")]
        assert len(files) == 1, f"{old!r} is in {files}"
        files[0].write_text(edited(files[0].read_text("utf-8"), [(old, new)]), "utf-8")
    others = {key: sys.modules.pop(key) for key in list(sys.modules) if key.split(".")[0] == "examples"}
    sys.path.insert(0, str(there))
    try:
        importlib.invalidate_caches()
        module = importlib.import_module(f"{name}.app")
        module.app.registry.load()
        return Release(module.app.registry, module)
    finally:
        sys.path.remove(str(there))
        for key in [key for key in sys.modules if key.split(".")[0] == "examples"]:
            del sys.modules[key]
        sys.modules.update(others)
