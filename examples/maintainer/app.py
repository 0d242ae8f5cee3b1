"""The application: the repository, the tools, the maintainer. Constructing it does no I/O."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models import Model

from examples.maintainer.machine import Machine
from examples.maintainer.offline import MAINTAINER, SUMMARIST
from examples.maintainer.repository import Commit, NotEdited, NothingToCommit, Repository
from outlive import DidNotHappen, Happened, Operation, Outlive, Retry, Unclear
from outlive.pydantic_ai import Compact, agent, notes, toolset


@dataclass
class Desk:
    """What the maintainer works with."""

    repository: Repository
    machine: Machine = field(default_factory=Machine)


@asynccontextmanager
async def open_desk() -> AsyncIterator[Desk]:
    """Of a worker: the repository that the environment names."""
    yield Desk(Repository(Path(os.environ["MAINTAINER_REPOSITORY"])))


app: Outlive[Desk] = Outlive(deps=open_desk)


class Tested(BaseModel):
    """What the tests have said."""

    passed: bool
    output: str


class Report(BaseModel):
    """What the maintainer gives: names of fixes."""

    fixed: list[str]
    left: list[str]


@app.tool(effect="read")
def list_files(op: Operation[Desk]) -> list[str]:
    """The files of the repository."""
    return op.deps.repository.files()


@app.tool(effect="read")
def read_file(op: Operation[Desk], path: str) -> str:
    """Read a file of the repository."""
    try:
        return op.deps.repository.read(path)
    except FileNotFoundError:
        return f"there is no file {path}"


@app.tool(effect="idempotent", raises=(NotEdited, FileNotFoundError))
def edit_file(op: Operation[Desk], path: str, old: str, new: str) -> str:
    """Replace a piece of text in a file.

    Args:
        path: the file
        old: the text that is to go, exactly as it is; it has to be in the file once
        new: what comes in its place
    """
    op.deps.repository.edit(path, old, new)
    return f"{path} is edited"


@app.tool(effect="read", retry=Retry(attempts=50), timeout=timedelta(minutes=2))
def run_tests(op: Operation[Desk], name: str = "") -> Tested:
    """Run tests; the machine for them is shared, so this can take long.

    Args:
        name: which ones, such as tests.Lengths; all when it is empty
    """
    op.deps.machine.use()
    passed, output = op.deps.repository.tested(name)
    return Tested(passed=passed, output=output)


async def find_commit(op: Operation[Desk]) -> Happened[Commit] | DidNotHappen | Unclear:
    """Asked when a worker died between the commit and its record: the history of the repository has the key."""
    if (found := op.deps.repository.of(op.key)) is not None:
        return Happened(found)
    return Unclear("git is at work on it") if op.deps.repository.is_being_written else DidNotHappen()


@app.tool(
    effect="external", reconcile=find_commit, timeout=timedelta(seconds=3), settle_after=timedelta(seconds=1),
    raises=(NothingToCommit,),
)  # fmt: skip
def commit(op: Operation[Desk], message: str) -> Commit:
    """Commit all that was edited.

    Args:
        message: one line, which begins with the name of the fix
    """
    op.deps.repository.stage()
    op.guard()
    return op.deps.repository.commit(message, op.key)


def models() -> dict[str, Model | str]:
    """By role, beside the agent's own: a real one writes its summaries itself."""
    return {} if os.environ.get("MAINTAINER_MODEL") else {"compact": SUMMARIST}


maintainer = Agent[Desk, Report](
    os.environ.get("MAINTAINER_MODEL") or MAINTAINER, name="maintainer", deps_type=Desk, output_type=Report,
    toolsets=[toolset(list_files, read_file, edit_file, run_tests, commit), notes()], defer_model_check=True,
    instructions=(
        "FIXES.md lists what is to be fixed in this repository. Work through it, one fix after the other: read, edit,"
        " run its tests, and commit when they pass. When they fail, read again and mend your edit. Note what you have"
        " committed and what is still open, for whoever goes on. At the end run all tests, and report."
    ),
)  # fmt: skip

# Offline it is made to happen, in a conversation that is short for a real model.
SHORT = Compact(at_tokens=20_000) if os.environ.get("MAINTAINER_MODEL") else Compact(at_tokens=2_000, keep=4)

maintain = agent(app, maintainer, models=models(), compact=SHORT)
