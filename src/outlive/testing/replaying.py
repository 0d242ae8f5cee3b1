"""Replay in another process: a run is recorded up to its last append, and others with other hash seeds take it over.

The order of a set differs from process to process; an agent that goes by it asks for other calls than the log has.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TypeAlias, TypeVar

from typing_extensions import TypeVar as DefaultTypeVar

from outlive.app.outlive import Outlive
from outlive.app.registry import Registry
from outlive.engine.definition import Agent, AgentSpec
from outlive.log import kinds
from outlive.model.ids import RunId
from outlive.secret.port import ChainSecrets
from outlive.testing.audit import Story, story, whole_log
from outlive.testing.faults import Fault
from outlive.testing.ground import File, Ground
from outlive.testing.world import KeptSecrets, World

D = DefaultTypeVar("D", default=None)
I = TypeVar("I")  # noqa: E741 - as the public surface names it
R = TypeVar("R")

New: TypeAlias = "Callable[[AgentSpec, Ground], World[D]]"

_PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class _Job:
    """What the other process is told."""

    path: str
    module: str
    agent: str
    run: str
    now: int
    deps: str


@dataclass(frozen=True, slots=True)
class _Repeated:
    """How a repetition ended: status, result, what it asked for, and what it executed, which should be nothing."""

    status: str
    result: str
    story: Story
    sent: list[str]
    log: list[str]


async def replay_elsewhere(
    new: New[D], directory: Path, agent: Agent[I, R], input: I, hash_seeds: tuple[int, ...], deps: str
) -> None:
    """Record in a file there, then repeat under each hash seed.

    Raises AssertionError that says what differs, and shows the log.
    """
    job = await _record(new, directory, agent, input, deps)
    here = await _repeat(await _copied(job, "here"), _served(agent), None)
    for seed in hash_seeds:
        there = await asyncio.to_thread(_elsewhere, await _copied(job, str(seed)), seed)
        wrong = [f"it executed {name} again" for name in there.sent]
        if (there.status, there.result) != (here.status, here.result):
            wrong.append(f"it is {there.status} {there.result}, here it is {here.status} {here.result}")
        if there.story != here.story:
            wrong.append("it asked for something else")
        if wrong:
            raise AssertionError(
                "\n".join([f"replay of {agent.name} with PYTHONHASHSEED={seed}:", *wrong, "log:", *there.log])
            )


async def _record(new: New[D], directory: Path, agent: Agent[I, R], input: I, deps: str) -> _Job:
    """A run that has everything in its log but its end."""
    path = directory / f"{agent.name}.db"
    count = await _appends(new(agent, File(directory / f"{agent.name}.whole.db")), agent, input)
    world = new(agent, File(path))
    await world.open(Fault("die", count, "append"))
    try:
        handle = await world.client.start(agent, input, id=agent.name)
        await world.finish(RunId(handle.id), until_death=True)
        now = world.clock.now()
    finally:
        await world.close()
    return _Job(str(path), agent.fn.__module__, agent.name, handle.id, now, deps)


async def _appends(world: World[D], agent: Agent[I, R], input: I) -> int:
    await world.open()
    try:
        handle = await world.client.start(agent, input, id=agent.name)
        row = await world.finish(RunId(handle.id))
        assert row.ended, f"{agent.name} does not end but is {row.status}; only what ends can be repeated"
        return world.process.counts["append"]
    finally:
        await world.close()


async def _copied(job: _Job, name: str) -> _Job:
    path = Path(job.path).with_suffix(f".{name}.db")
    await asyncio.to_thread(shutil.copy, job.path, path)
    return _Job(str(path), job.module, job.agent, job.run, job.now, job.deps)


async def _repeat(job: _Job, registry: Registry, deps: object) -> _Repeated:
    """Take the run over and let it end."""
    world: World[object] = World(
        registry, deps, File(Path(job.path)), secrets=KeptSecrets({}, ChainSecrets([])), now=job.now
    )  # fmt: skip
    await world.open()
    try:
        row = await world.finish(RunId(job.run))
        entries = await whole_log(world, row.id)
        ended = [entry.payload or "" for entry in entries if entry.kind == kinds.Ended.KIND]
        sent = [one.tool for one in world.witnessed if one.kind == "sent"]
        detail = "".join(ended) if row.ended else f"{row.reason}: {row.detail}"
        return _Repeated(row.status, detail, story(entries), sent, await world.lines(row.id))
    finally:
        await world.close()


def _served(agent: AgentSpec) -> Registry:
    """The application that has the agent, with this agent alone."""
    for value in vars(import_module(agent.fn.__module__)).values():
        if isinstance(value, Outlive) and value.registry.agents.get(agent.name) is agent:
            registry = Registry()
            registry.agents, registry.tools = {agent.name: agent}, value.registry.tools
            return registry
    raise AssertionError(f"the module {agent.fn.__module__} of {agent.name} has no name for the application")


def _elsewhere(job: _Job, seed: int) -> _Repeated:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-m", "outlive.testing.replaying", json.dumps(asdict(job))],
        env=environment, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"the other process failed:\n{done.stderr}")
    said = json.loads(done.stdout.splitlines()[-1])
    told = {scope: [tuple(call) for call in calls] for scope, calls in said.pop("story").items()}
    return _Repeated(story=told, **said)


def _main(text: str) -> None:
    job = _Job(**json.loads(text))
    module = import_module(job.module)
    agents = [one.registry.agents.get(job.agent) for one in vars(module).values() if isinstance(one, Outlive)]
    agent = next(one for one in agents if one is not None)
    deps: object = None
    if job.deps:
        name, _, function = job.deps.partition(":")
        deps = getattr(import_module(name), function)()
    print(json.dumps(asdict(asyncio.run(_repeat(job, _served(agent), deps)))))


if __name__ == "__main__":
    _main(sys.argv[1])
