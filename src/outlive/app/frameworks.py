"""Agents of frameworks, as `app.agent(…)` takes them: each by the adapter that knows its framework."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from outlive.engine.callables import describe, placeholder
from outlive.engine.definition import Agent
from outlive.model.errors import Refused
from outlive.model.function import UserFunction

if TYPE_CHECKING:
    from outlive.app.outlive import Outlive

# By the package that defines the class of an agent. Named, not imported: each needs its extra.
ADAPTERS = {"pydantic_ai": "outlive.pydantic_ai", "agents": "outlive.openai_agents"}


def register(app: Outlive[Any], agent: object, settings: dict[str, Any]) -> Agent[str, Any]:
    """Have its adapter register an agent of a framework. Raises Refused for anything else."""
    packages = {kind.__module__.partition(".")[0] for kind in type(agent).__mro__}
    adapter = next((ADAPTERS[one] for one in packages if one in ADAPTERS), None)
    if adapter is None:
        what = agent.__qualname__ if isinstance(agent, FunctionType) else type(agent).__qualname__
        why = "a function is registered with @app.agent(), with brackets; app.agent(…) takes agents of frameworks"
        raise Refused(what=what, why=why)
    return cast("Agent[str, Any]", import_module(adapter).agent(app, agent, **settings))


def registered(
    app: Outlive[Any], name: str, version: str, drive: UserFunction, renamed: Mapping[str, str] | None
) -> Agent[str, Any]:  # fmt: skip
    """For adapters: register what drives an agent of a framework, as what stands where user code does so."""
    made: Agent[str, Any] = Agent(name, version, drive, renamed=renamed)
    made.source = _here()
    made.where = describe(made.source)
    app.registry.add_agent(made)
    return made


def _here() -> UserFunction:
    """A function that stands where user code is registering an agent: what the build follows, and what is told."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("outlive."):
        frame = frame.f_back
    return placeholder(frame)
