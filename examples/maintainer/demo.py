"""Run the maintainer while its workers are killed in the middle of commits, and read the history of the repository.

`python -m examples.maintainer.demo [--kills 2] [--model anthropic:claude-opus-5]`; without a model it runs offline.
Exit code 0: each fix is committed once, and all tests pass; 1: not so; 2: the run failed.
`--keep DIRECTORY` leaves the repository there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from examples.maintainer.app import Report, app, maintain
from examples.maintainer.repository import Repository
from examples.maintainer.waiting import tick
from examples.workers import Worker, played, worker
from outlive import Handle
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.pydantic_ai import spent

PROMPT = "Work through FIXES.md."


async def main(kills: int, model: str, keep: str, out: Console) -> int:
    """One run from its start to its report."""
    with tempfile.TemporaryDirectory() as directory:
        repository = _repository(keep or directory)
        os.environ |= {
            "OUTLIVE_STORE": f"sqlite:///{Path(directory) / 'runs.db'}", "MAINTAINER_MODEL": model,
            "MAINTAINER_REPOSITORY": str(repository.root),
        }  # fmt: skip
        async with app:
            run = await app.start(maintain, PROMPT, id="fixes")
            with worker("examples.maintainer.app:app") as one:
                await _kill(one, run, repository, kills, out)
                report = await run.result()
            requests = sum(each.requests for each in await spent(app, run.id))
            lost = sum(each.lost for each in await spent(app, run.id))
            notes = [event.data async for event in run.events() if event.name == "note"]
        out.print("\nnotes for whoever goes on:", *(f"- {one['text']}" for one in notes), sep="\n", highlight=False)
        out.print(f"\n{requests} answers of models, and {lost} that were lost with a worker")
        return judged(repository, report, out)


def _repository(directory: str) -> Repository:
    """A new one, in which git has something to do behind each commit, so that a worker can be killed meanwhile."""
    made = Repository.made(Path(directory).absolute() / "repository")
    made.hook("sleep 0.5")
    return made


async def _kill(one: Worker, run: Handle[Report], repository: Repository, kills: int, out: Console) -> None:
    """So many kills, each in a commit of its own: by turns as soon as it may be sent, and when it is made."""
    killed: list[str] = []
    while len(killed) < kills and await run.status() in ("ready", "running", "waiting"):
        for each in await app.opened.operations(DEFAULT_TENANT, RunId(run.id)):
            if each.tool != "commit" or each.status != "pending" or each.key in killed:
                continue
            if len(killed) % 2 == 0 or repository.of(each.key) is not None:
                one.replace()
                killed.append(each.key)
                made = "made" if repository.of(each.key) else "not made"
                out.print(f"a worker was killed in {each.arguments}, which was {made}", highlight=False)
        await tick(0.005)


def judged(repository: Repository, report: Report, out: Console) -> int:
    """Whether each fix is committed once, as the history says."""
    commits = [one for one in repository.commits() if one.operation]
    for one in reversed(commits):
        out.print(f"{one.id} {one.subject}", highlight=False)
    fixes = sorted(one.subject.partition(":")[0] for one in commits)
    passed, said = repository.tested("")
    if fixes != sorted(report.fixed) or len({one.operation for one in commits}) != len(commits) or not passed:
        out.print(f"the report says {report}, the history {fixes}, the tests {said}")
        return 1
    out.print("each fix is committed once, and all tests pass")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=2, choices=range(6))
    parser.add_argument("--model", default=os.environ.get("MAINTAINER_MODEL", ""), help="a name that pydantic-ai knows")
    parser.add_argument("--keep", default="", metavar="DIRECTORY", help="where the repository is made, and stays")
    given = parser.parse_args()
    out = Console()
    sys.exit(played(main(given.kills, given.model, given.keep, out), out))
