"""Plays scenarios with rows, several at a time, and keeps what came out as JSON."""

from __future__ import annotations

import fcntl
import json
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from conformance.adapter import NotOffered, Row
from conformance.judge import WORDS, Verdict, Word, twice
from conformance.scenarios import SCENARIOS, Scenario, Stage
from conformance.scene import TooLate
from conformance.waiting import now

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Result:
    """What one row did in one scenario."""

    row: str
    scenario: str
    word: str
    why: str
    notes: list[str]
    happened: list[str]
    effects: list[dict[str, object]]
    requests: list[str]
    history: dict[str, list[str]]
    logs: list[str]
    seconds: float
    version: str


def play(row: Row, scenario: Scenario, turns: int = 2000) -> Result:
    """Put the row to the scenario. A defect of adapter or kit is *no verdict*."""
    began, stage = now(), Stage(row, turns)
    version = ""
    try:
        if why := scenario.not_offered(row):
            verdict = Verdict("not offered", why)
        else:
            verdict = scenario.play(stage)
            assert stage.scene is not None
            version = str(stage.scene.ask("about").get("version", ""))
    except NotOffered as error:
        verdict = Verdict("not offered", str(error))
    except TooLate as error:
        verdict = Verdict("no verdict", f"the scenario did not come about: {error}")
    except Exception as error:  # noqa: BLE001 - one scenario's defect must not hide the others' results
        verdict = Verdict("no verdict", "".join(traceback.format_exception(error)[-3:]))
    scene = stage.scene
    try:
        return Result(
            row=row.name,
            scenario=scenario.name,
            word=verdict.word,
            why=verdict.why,
            notes=verdict.notes,
            happened=list(scene.happened) if scene else [],
            effects=[asdict(one) for one in scene.service.effects[:40]] if scene else [],
            requests=scene.service.requests[:60] if scene else [],
            history={run: lines[:60] for run, lines in stage.history.items()},
            logs=scene.logs() if scene and verdict.word != "safe" else [],
            seconds=round(now() - began, 1),
            version=version,
        )
    finally:
        if scene is not None:
            scene.close()


def play_all(
    pairs: Sequence[tuple[Row, Scenario]], jobs: int, told: Callable[[Result], None], turns: int = 2000
) -> list[Result]:
    """All pairs, `jobs` at a time; `told` hears of each as it comes out."""

    def one(pair: tuple[Row, Scenario]) -> Result:
        result = play(*pair, turns)
        told(result)
        return result

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, pairs))


def chosen(names: Sequence[str], *, fast: bool = False) -> list[Scenario]:
    """These scenarios, or all."""
    if unknown := sorted(set(names) - set(SCENARIOS)):
        raise LookupError(f"no such scenario: {', '.join(unknown)}")
    return [one for name, one in SCENARIOS.items() if (name in names or not names) and (one.fast or not fast)]


def bad_once(row: Row, scenario: Scenario, folder: Path = RESULTS) -> bool:
    """Whether it takes another run to say what counts: a bad word was seen, and not seen again."""
    words = _known(row, folder).get(scenario.name, {}).get("words", [])
    return bool(words) and twice(words) is None


def recorded(row: Row, scenario: Scenario, folder: Path = RESULTS) -> bool:
    """Whether anything is known of this row in this scenario."""
    return scenario.name in _known(row, folder)


def _known(row: Row, folder: Path) -> dict[str, Any]:
    """What was recorded of a row, by scenario."""
    file = folder / f"{row.name}.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))["results"] if file.exists() else {}
    return found


def _evidence(result: dict[str, Any]) -> dict[str, Any]:
    """What is worth keeping: without the processes' logs, and of long runs the beginning."""
    result = {name: value for name, value in result.items() if name != "logs"}
    result["effects"], result["requests"] = result["effects"][:12], result["requests"][:24]
    result["history"] = {run: lines[:24] for run, lines in list(result["history"].items())[:3]}
    return result


def keep(result: Result, row: Row, folder: Path = RESULTS) -> None:
    """Into the file of the row: every word, and the evidence of the worst. What did not come about says nothing."""
    if result.word == "no verdict":
        return
    folder.mkdir(exist_ok=True)
    with _alone(folder):
        known = _known(row, folder)
        when = f"{datetime.now(UTC):%Y-%m-%d}"  # noqa: TID251 - the day of a record is the real one
        earlier = known.get(result.scenario, {"words": []})
        found = _evidence(asdict(result)) | {"when": when}
        if earlier["words"] and WORDS.index(earlier["word"]) < WORDS.index(cast("Word", result.word)):
            found = earlier
        known[result.scenario] = found | {"words": [*earlier["words"], result.word]}
        names = ("adapter", "engine", "driven", "about", "store", "mode", "service", "same_as", "differs")
        said = {name: getattr(row, name) for name in names} | {"results": dict(sorted(known.items()))}
        text = json.dumps({"row": row.name} | said, indent=1, ensure_ascii=False)
        (folder / f"{row.name}.json").write_text(text + "\n", "utf-8")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Kits that record at the same time do it one after the other."""
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
