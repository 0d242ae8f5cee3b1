"""What in the agents of an application would replay differently, as the linter reads their source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from outlive.lint.finding import CODES, Finding, Report
from outlive.lint.reach import check as read

if TYPE_CHECKING:
    from outlive.app.outlive import Outlive
    from outlive.app.settings import Settings

__all__ = ["CODES", "Finding", "Report", "check", "shown"]


def check(app: Outlive[object], settings: Settings, agents: Sequence[str], codes: Collection[str]) -> Report:
    """Read these agents, all where none is named, and keep what has one of the codes. Raises UnknownAgent."""
    registry = app.registry
    functions = [*(one.fn for one in registry.tools.values()), *(one.fn for one in registry.agents.values())]
    named = [registry.agent(name) for name in agents] if agents else list(registry.agents.values())
    # The application's own module and those that it includes: what its agents call is in there, wherever they are.
    packages = {name.partition(":")[0].partition(".")[0] for name in (settings.app, *registry.include)}
    report = read({one.name: one.fn for one in named}, functions, packages)
    return replace(report, findings=_of(report.findings, codes), notes=_of(report.notes, codes))


def shown(file: str) -> str:
    """A file as people say it: from where they are, if it is below."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _of(findings: list[Finding], codes: Collection[str]) -> list[Finding]:
    return [one for one in findings if one.found.code in codes]
