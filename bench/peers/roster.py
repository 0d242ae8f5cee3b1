"""Which engines take part, how each is set, and what one has not or cannot be asked for, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LEASE_S = 2
SLOTS = 8
"""Runs at once in a worker, of engines that want a number."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One row. `program` is a module of `bench.peers.engines`, `environment` a folder of `conformance/.envs`.

    One that is `alone` has no workers: its worker is told to start runs, and to go on with them. The workers of one
    that is `early` have to be there before a run is started. `lacking` says for a measure why there is no figure. `own`
    is the server that it brings, `floor` the store that it is held against.
    """

    name: str
    title: str
    about: str
    program: str
    floor: str
    environment: str = ""
    own: str = ""
    alone: bool = False
    workers: int = 2
    early: bool = False
    given: Mapping[str, object] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    only: tuple[str, ...] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)

    def has(self, measure: str) -> bool:
        """Whether it is asked for this measure."""
        return measure not in self.lacking and (not self.only or measure in self.only)


_OURS = {"OUTLIVE_LEASE": f"{LEASE_S}s"}
_DBOS = "as DBOS starts and wakes"

ENGINES = (
    Engine(
        "outlive-sqlite", "Outlive, SQLite", "`run.step`; an operation is a call of an *external* tool",
        "outlive", "sqlite", variables=_OURS,
    ),
    Engine(
        "outlive-postgres", "Outlive, PostgreSQL", "the same; `direct=yes`, as without a pooler between",
        "outlive", "postgres", variables=_OURS, query="direct=yes",
    ),
    Engine(
        "outlive-pooler", "Outlive, PostgreSQL, as behind a pooler", "without `direct=yes`: nothing is prepared",
        "outlive", "postgres", variables=_OURS, only=("step", "operation", "start"),
    ),
    Engine(
        "dbos-postgres", "DBOS, PostgreSQL", "a queued \"workflow\" of steps, the queue looked at every second as by"
        " default",
        "dbos", "postgres", "dbos",
    ),
    Engine(
        "dbos-postgres-20ms", "DBOS, PostgreSQL, 20 ms", "the queue looked at every 20 ms",
        "dbos", "postgres", "dbos", given={"poll": 0.02}, only=("start", "recovery"),
    ),
    Engine("dbos-sqlite", "DBOS, SQLite", "the same on SQLite", "dbos", "sqlite", "dbos"),
    Engine(
        "absurd", "Absurd, PostgreSQL", f"a task of steps, the queue looked at every 250 ms as by default; {SLOTS} at"
        f" once, `claim_timeout={LEASE_S}` (120 by default)", "absurd", "postgres", "absurd",
    ),
    Engine(
        "absurd-20ms", "Absurd, PostgreSQL, 20 ms", "the queue looked at every 20 ms",
        "absurd", "postgres", "absurd", given={"poll": 0.02}, only=("start", "wake"),
    ),
    Engine(
        "langgraph-postgres", "LangGraph, PostgresSaver", "a node that is taken again and again, `durability=sync`;"
        " answers kept in a list of its state; it has no workers: who asks drives the run, and nobody has to be told",
        "langgraph", "postgres", "langgraph", alone=True,
    ),
    Engine(
        "langgraph-sqlite", "LangGraph, SqliteSaver", "the same on SQLite", "langgraph", "sqlite", "langgraph",
        alone=True,
    ),
    Engine(
        "restate", "Restate", "a \"workflow\" of `ctx.run` on a server of its own with its defaults; one process serves"
        " the handlers", "restate", "postgres", "restate", own="restate", workers=1, early=True,
    ),
    Engine(
        "temporal", "Temporal, dev server", "a \"workflow\" of \"activities\"; the development server with a database"
        " file, which is not its production server", "temporal", "sqlite", "temporal", own="temporal",
    ),
    Engine(
        "pydantic-ai", "pydantic-ai on DBOS, PostgreSQL", "an agent whose scripted model calls a tool in each answer:"
        " a request and a tool are a step each", "pydantic_ai", "postgres", "pydantic_ai",
        given={"workflow": "converses"},
        lacking={"start": _DBOS, "wake": _DBOS, "memory": _DBOS},
    ),
)  # fmt: skip

FLOORS = ("sqlite", "postgres")
