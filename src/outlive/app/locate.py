"""Finds the application that a command line names: `module:attribute`, from the current directory as well."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import cast

from outlive.app.outlive import Outlive
from outlive.app.settings import Settings
from outlive.model.errors import OutliveError, SettingInvalid

_HOW = "say module:attribute, as in shop.app:app"


def locate(settings: Settings) -> Outlive[object]:
    """Import the application that `settings.app` names, and the modules that it includes.

    The current directory is searched first. Raises SettingInvalid that names the module and the reason, and what the
    application's own registering raises (DuplicateName, Refused, BadArguments …).
    """
    name, source = settings.app, settings.sources.get("app", "default")
    module, _, attribute = name.partition(":")
    if not name:
        raise _refused(name, source, f"no application is named; use --app or OUTLIVE_APP, and {_HOW}")
    if not module or not attribute:
        raise _refused(name, source, _HOW)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: object = _import(module, name, source, here)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _refused(name, source, f"module {module} has no {attribute!r}{_instead(sys.modules[module])}")
        found = getattr(found, part)
    if not isinstance(found, Outlive):
        why = f"{attribute} is a {type(found).__name__}, not an Outlive{_instead(sys.modules[module])}"
        raise _refused(name, source, why)
    app = cast("Outlive[object]", found)
    try:
        app.registry.load()
    except OutliveError:
        raise
    except Exception as error:
        raise _refused(name, source, f"a module that it includes cannot be imported: {_reason(error)}") from error
    return app


def _import(module: str, name: str, source: str, here: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except OutliveError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            why = f"there is no module {error.name} (searched {here} and sys.path)"
        else:
            why = f"module {module} cannot be imported: {_reason(error)}"
        raise _refused(name, source, why) from error
    except Exception as error:
        raise _refused(name, source, f"module {module} cannot be imported: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The error with the line of the user's code that it comes from."""
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<frozen")]
    if isinstance(error, SyntaxError) or not frames or frames[-1].filename == __file__:
        return said
    return f"{said} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def _instead(module: ModuleType) -> str:
    known = sorted(name for name, value in vars(module).items() if isinstance(value, Outlive))
    return f"; it has {', '.join(f'{module.__name__}:{one}' for one in known)}" if known else ""


def _refused(name: str, source: str, why: str) -> SettingInvalid:
    return SettingInvalid(name="app", value=name, source=source, why=why)
