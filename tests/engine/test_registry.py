"""What an application registers, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, cast

import pytest
from pydantic import BaseModel, SecretStr

from outlive import NotDigested, Operation, Outlive, Run
from outlive.app.compose import worker_of
from outlive.app.settings import Settings
from outlive.errors import BadArguments, DuplicateName, Refused, ScopeOpen, SecretInSignature, UnknownAgent, WrongState
from outlive.store.port import Store
from outlive.testing.clock import ManualClock
from tests.engine.rig import Rig
from tests.engine.scenes import acts, control
from tests.engine.subject import RUN, State, begin, does


async def one(run: Run[None], input: str) -> str:
    return input


async def two(run: Run[None], input: str) -> str:
    return input


async def send(op: Operation[None], what: str) -> str:
    return what


class Account(BaseModel):
    pin: SecretStr


async def login(op: Operation[None], account: Account) -> None: ...


async def agent_with_secret(run: Run[None], pin: SecretStr) -> None: ...


def not_async(run: Run[None], input: str) -> str:
    return input


async def two_inputs(run: Run[None], a: str, b: str) -> str:
    return a + b


def test_two_agents_or_tools_of_one_name_are_refused_with_both_places() -> None:
    app: Outlive[None] = Outlive()
    app.agent(name="twin")(one)
    with pytest.raises(DuplicateName, match=r"one .*test_registry.py.* and .*two"):
        app.agent(name="twin")(two)
    app.tool(name="send")(send)
    with pytest.raises(DuplicateName, match="two tools"):
        app.tool(name="send")(send)


def test_an_unknown_agent_is_answered_with_those_there_are() -> None:
    app: Outlive[None] = Outlive()
    app.agent()(one)
    with pytest.raises(UnknownAgent, match="registered: one"):
        app.registry.agent("three")


def test_secrets_in_signatures_are_refused_also_deep_inside() -> None:
    app: Outlive[None] = Outlive()
    with pytest.raises(SecretInSignature, match="account holds a secret type"):
        app.tool()(login)
    with pytest.raises(SecretInSignature):
        app.agent()(agent_with_secret)


def test_an_agent_is_an_async_function_of_one_input() -> None:
    app: Outlive[None] = Outlive()
    with pytest.raises(Refused, match="async def"):
        app.agent()(not_async)  # type: ignore[arg-type]  # the misuse under test
    with pytest.raises(BadArguments, match="exactly one input"):
        app.agent()(two_inputs)  # type: ignore[arg-type]  # the misuse under test


def test_a_module_that_cannot_be_included_is_named() -> None:
    app: Outlive[None] = Outlive(include=["shop.nowhere"])
    with pytest.raises(Refused, match=r"include='shop.nowhere'.*cannot be imported"):
        app.registry.load()


def test_the_build_changes_with_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "from outlive import Run\nasync def job(run: Run[None], input: str) -> str:\n    return {!r}\n"
    builds = []
    for number in range(2):
        name = f"built_{number}"
        (tmp_path / f"{name}.py").write_text(source.format(number))
        app: Outlive[None] = Outlive()
        app.agent()(__import__(name).job)
        builds.append((app.registry.build(), app.registry.build()))
    assert builds[0][0] == builds[0][1]
    assert builds[0] != builds[1]


SAY_BUILD = """
from outlive import Outlive
from {} import job
app = Outlive()
app.agent()(job)
print(app.registry.build())
"""
AGENT = (
    "from outlive import Run\nfrom {} import rate\nasync def job(run: Run[None], input: str) -> str:\n    return rate"
)


@pytest.mark.parametrize("packaged", [True, False])
def test_the_build_changes_with_code_that_the_agent_imports_and_not_with_its_place(
    tmp_path: Path, packaged: bool
) -> None:
    """A module that decides what an agent asks for is part of the release, whichever file the agent is in."""
    builds = {}
    for place, rate in (("here", 1), ("there", 1), ("changed", 2)):
        directory = tmp_path / place / ("shop" if packaged else "")
        directory.mkdir(parents=True)
        (directory / ("__init__.py" if packaged else "unused.py")).touch()
        (directory / "more.py").touch()
        (directory / "rates.py").write_text(f"rate = '{rate}'")
        (directory / "jobs.py").write_text(AGENT.format("shop.rates" if packaged else "rates"))
        # A process that has imported more of the package is of the same build.
        also = "import shop.more" if packaged and place == "there" else ""
        command = [sys.executable, "-c", also + SAY_BUILD.format("shop.jobs" if packaged else "jobs")]
        done = subprocess.run(command, cwd=tmp_path / place, capture_output=True, text=True, check=True)
        builds[place] = done.stdout.strip()
    assert builds["here"] == builds["there"]
    assert builds["here"] != builds["changed"]


def test_the_build_can_be_said() -> None:
    app: Outlive[None] = Outlive()
    app.agent(name="one")(one)
    said = Settings.load({"OUTLIVE_BUILD": "release-7"})
    store = cast(Store, None)
    worker = worker_of(app.registry, store, said, ManualClock(), None)
    assert worker.kit.code == "release-7"
    assert worker_of(app.registry, store, Settings(), ManualClock(), None).kit.code == app.registry.build()


async def test_only_a_blocked_run_can_be_retried(rig: Rig) -> None:
    await rig.settle(await begin(rig, acts))
    with pytest.raises(WrongState, match="only a blocked run"):
        await control(rig).retry(await rig.row(RUN), who="ada", why="to see")


async def test_a_turn_that_ends_in_a_branch_says_so(rig: Rig) -> None:
    caught: list[ScopeOpen] = []

    async def body(run: Run[None]) -> object:
        async def branch() -> None:
            try:
                async for _ in run.turns(State()):
                    break
            except ScopeOpen as error:
                caught.append(error)

        await run.gather(branch())
        return "done"

    await rig.settle(await begin(rig, body))
    assert caught[0].scope == "/gather/0:branch.0"


async def remember(note: Annotated[str, NotDigested], n: int) -> int:
    does.steps.append(note)
    return n


async def test_what_is_not_digested_may_change_between_replays(rig: Rig) -> None:
    notes = iter(["first", "second", "third"])

    async def body(run: Run[None]) -> object:
        return [await run.step(remember, next(notes), 1), await run.step(remember, "fixed", 2)]

    rig.evict = True
    assert (await rig.until_ended(await begin(rig, body), RUN)).status == "succeeded"
    assert does.steps == ["first", "fixed"]
