"""The figures in the documentation are those of the code, and its tables name everything that there is."""

from __future__ import annotations

import inspect
import re
import typing
from datetime import timedelta

import pytest

from outlive.app import client, given
from outlive.app.settings import Settings, shown
from outlive.duty import route, telling, webhook
from outlive.duty import streaming as deltas
from outlive.engine import (
    authority,
    callables,
    definition,
    failures,
    notices,
    replay,
    settle,
    streaming,
    waking,
    worker,
)
from outlive.engine.attempt import Kit
from outlive.log import entry
from outlive.model import ids
from outlive.model.operation import Effect, OperationStatus, Retry
from outlive.model.run import STATUSES, Block, Status, may_follow
from outlive.secret import scrubber
from outlive.store.postgres import hints
from outlive.store.sqlite import connection, thread
from outlive.store.sqlite.store import SQLiteStore
from tests.docs.pages import ROOT
from tests.store import test_idle

LIMITS = (ROOT / "docs" / "limits.md").read_text("utf-8")
CONCEPTS = (ROOT / "docs" / "concepts.md").read_text("utf-8")
PACE, SETTINGS = worker.Pace(), Settings()


def spoken(span: timedelta | float) -> str:
    """A span of time as the documentation writes it."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    for size, unit in ((3600, "h"), (60, "min"), (1, "s")):
        if seconds > size or (seconds == size and unit != "h"):
            return f"{seconds / size:g} {unit}"
    return f"{seconds * 1000:g} ms"


def default(fn: object, name: str) -> object:
    """The default of a parameter."""
    assert callable(fn)
    found: object = inspect.signature(fn).parameters[name].default
    return found


FIGURES = {
    "lease (": [spoken(SETTINGS.lease), "500 ms"],
    "renewal": ["third", spoken(authority.margin_s(SETTINGS.lease.total_seconds()))],
    "time-out of a tool": [spoken(definition.TOOL_TIMEOUT)],
    "time-out of a step": [spoken(definition.STEP_TIMEOUT)],
    "`settle_after`": ["60 s" if timedelta(seconds=60) == definition.SETTLE_AFTER else "?"],
    "`dedupes_for`": [spoken(definition.DEDUPES_FOR)],
    "retries of a tool": [f"{Retry().attempts} attempts", spoken(Retry().first), spoken(Retry().most)],
    "`retry_after`": ["24 h" if "24 * 3600" in inspect.getsource(failures.retry_after) else "?"],
    "look-ups": [
        str(settle.LOOKUPS.attempts), spoken(settle.LOOKUPS.first), spoken(settle.LOOKUPS.most),
        f"{settle.LOOKUP_TIMEOUT.total_seconds():g} s",
    ],
    "leases that lapse": [str(SETTINGS.max_lapses)],
    "clean-up": [spoken(SETTINGS.grace)],
    "how soon somebody": [spoken(PACE.poll_most)],
    "a delivery that fails": [
        spoken(telling.LONGEST_PAUSE), f"{telling.PATIENCE.days} days", spoken(route.TIMEOUT),
    ],
    "a route that fails": [
        f"{telling.MOST_FAILURES} times", spoken(telling.LONGEST_REST), f"{telling.AT_ONCE} at once",
    ],
    "deadline near": [
        f"{telling.DEADLINE_LEAD.total_seconds() / 3600:g} h", spoken(telling.DeadlinesDuty.due), "every minute",
    ],
    "reason, detail": [f"{notices.SHOWN:,}"],
    "what a receiver": [str(webhook.SHOWN)],
    "event loop": [spoken(SETTINGS.stall_limit), f"code {authority.STALLED_EXIT}"],
    "drain": [spoken(SETTINGS.drain)],
    "code that does not end": [spoken(typing.cast("float", default(Kit, "unload_s")))],
    "how soon a worker": [spoken(PACE.poll_least), spoken(PACE.poll_most)],
    "hints that do not arrive": [spoken(PACE.poll_deaf), spoken(hints.PATIENCE_S)],
    "hints that lead to nothing": [spoken(waking.QUIET_MOST_S)],
    "statements of an idle worker": [str(test_idle.MOST), f"{60 / PACE.poll_most:g}"],
    "sign of life": [spoken(worker.SIGN_MOST_S)],
    "how soon `handle": [spoken(client._PAUSE_LEAST), spoken(client._PAUSE_MOST)],
    "payload in": [f"{entry.BLOB_BYTES // 1024} KiB"],
    "a piece of text": [f"{streaming.MOST_OF_PIECE:,}"],
    "what an attempt": [f"{streaming.MOST_OF_CALL:,}"],
    "what the calls of": [f"{streaming.MOST_OF_RUN:,}"],
    "how often a worker writes": [spoken(streaming.BETWEEN_S), str(streaming.MOST_AT_ONCE)],
    "text whose worker": ["1 h" if timedelta(hours=1) == deltas.OLDEST else "?"],
    "principal, identity, who asks, a label and its value": [str(ids.LONGEST_NAME), f"{given.MOST_LABELS} labels"],
    "purpose, and why somebody asks": [f"{ids.LONGEST_WORDS:,}"],
    "id of a run": [str(ids.LONGEST_NAME)],
    "message and data": [f"{failures._LONGEST:,}"],
    "a call as it is shown": [str(replay._SHOWN)],
    "value of a secret": [str(scrubber.SHORTEST)],
    "runs of one worker": [str(SETTINGS.concurrency), str(worker.MOST_AT_ONCE)],
    "calls in plain `def`": [str(callables._pool._max_workers)],
    "version": [".".join(map(str, connection.OLDEST[:2]))],
    "writers": [str(thread.MOST_REQUESTS), spoken(typing.cast("float", default(SQLiteStore, "wait")))],
}  # fmt: skip


@pytest.mark.parametrize("limit", FIGURES)
def test_a_limit_has_the_figure_of_the_code(limit: str) -> None:
    (row,) = [line for line in LIMITS.splitlines() if line.startswith(f"| {limit}")]
    for figure in FIGURES[limit]:
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", row), f"{figure} is not in: {row}"


def test_every_default_of_a_setting_is_in_the_limits() -> None:
    for setting in (
        "lease", "concurrency", "drain", "grace", "stall_limit", "stall_notice", "max_lapses", "deadline_lead",
    ):  # fmt: skip
        assert f"(`{setting}`)" in LIMITS, f"{setting} = {shown(getattr(SETTINGS, setting))}"


def test_the_states_of_a_run_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (\w+) \| (\w+) \| .+ \|$", CONCEPTS, re.M)
    moves = [(before, after) for before, after in rows if before in STATUSES]
    assert len(moves) >= 14
    for before, after in moves:
        assert may_follow(typing.cast(Status, before), typing.cast(Status, after)), (before, after)
    assert {status for move in moves for status in move} == set(STATUSES)


def test_every_reason_to_be_blocked_says_what_to_do() -> None:
    recovery = (ROOT / "docs" / "recovery.md").read_text("utf-8")
    assert [reason for reason in typing.get_args(Block) if f"\n| {reason} | " not in recovery] == []


def test_the_glossary_names_every_status() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    every = {*STATUSES, *typing.get_args(OperationStatus)}
    assert [status for status in every if f"*{status}*" not in glossary] == []


def test_every_effect_is_explained() -> None:
    effects = (ROOT / "docs" / "effects.md").read_text("utf-8")
    assert [effect for effect in typing.get_args(Effect) if f"\n| `{effect}` | " not in effects] == []


def test_every_public_name_is_in_the_documentation() -> None:
    import outlive as package

    text = "".join(path.read_text("utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    assert [name for name in package.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_every_table_is_in_the_architecture() -> None:
    schema = (ROOT / "src" / "outlive" / "store" / "sqlite" / "schema.sql").read_text("utf-8")
    architecture = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    tables = re.findall(r"^CREATE TABLE (\w+)", schema, re.M)
    assert len(tables) > 5
    assert [table for table in tables if f"\n| `{table}` | " not in architecture] == []


def test_every_file_of_the_engine_is_in_the_architecture() -> None:
    architecture = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    files = [path.name for path in (ROOT / "src" / "outlive" / "engine").glob("*.py") if path.stem != "__init__"]
    assert [file for file in files if f"`{file}`" not in architecture] == []
