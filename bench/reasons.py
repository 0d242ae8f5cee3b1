"""Why a target is missed, by line and store: one sentence for the table, written by hand when it is understood.

A miss without a reason makes `make bench` fail; a reason whose target is met again is left out of the page.
"""

_ALONE = (
    "a run that is alone is committed where it is made; what is over the append is our own code, which behind a sync,"
    " with cold caches, takes up to twice the time that it takes in a loop of its own"
)
_CODE = (
    "0.7 ms of Python for a step (binding, digests, entry, fold, scopes, event loop) against 0.1 to 0.2 ms for the bare"
    " statement: on two cores that is the ceiling, and group commit saves only what the disk costs"
)
_PYDANTIC = (
    "pydantic, and some 200 dataclasses of ours, each compiled when it is imported; `import outlive` alone loads"
    " neither"
)
_EDGES = "one look in 6 s is 10 in a minute, and what is over falls on its edges"

REASONS: dict[tuple[str, str], str] = {
    ("step", "sqlite"): _ALONE,
    ("step", "postgres"): (
        "what is over the append alone is our own code, 0.5 ms of processor for a step; the append is one statement and"
        " one round trip, but updates the run's row as well"
    ),
    ("operation, external", "sqlite"): "an operation writes its record beside each of its two entries",
    ("operation, idempotent", "sqlite"): "an operation writes its record beside each of its two entries",
    ("operation, external", "postgres"): "an operation writes its record beside each of its two entries",
    ("operation, idempotent", "postgres"): "an operation writes its record beside each of its two entries",
    ("throughput", "sqlite"): _CODE,
    ("throughput", "postgres"): _CODE,
    ("wake, p50", "postgres"): (
        "a start is a read and a commit, its hint, a read and a commit to claim it, and two reads at once before its"
        " first step, each a round trip of its own"
    ),
    ("wake, p99", "postgres"): (
        "a start is a read and a commit, its hint, a read and a commit to claim it, and two reads at once before its"
        " first step, each a round trip of its own"
    ),
    ("loading", "postgres"): (
        "the prologue and the turn are found by two ranges of the key in a table that has grown; what takes the time is"
        " not understood yet"
    ),
    ("growth, turns", "postgres"): "within the spread of the rounds",
    ("import, agent", "sqlite"): _PYDANTIC,
    ("import, agent", "postgres"): _PYDANTIC,
    ("import, store", "sqlite"): _PYDANTIC,
    ("import, store", "postgres"): "pydantic, and psycopg with its pool",
    ("import, store, memory", "postgres"): "pydantic, and psycopg with its pool",
    ("idle, statements", "sqlite"): _EDGES,
    ("idle, statements", "postgres"): _EDGES,
}
