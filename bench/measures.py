"""Everything that is measured, by name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from bench import sequential
from bench.conversation import conversation
from bench.effort import Effort
from bench.figures import Line
from bench.gate import gate
from bench.growth import growth
from bench.idling import idling
from bench.imports import importing
from bench.places import Place
from bench.recovery import loading, recovery
from bench.sleepers import timers, waiting
from bench.throughput import throughput
from bench.waking import waking

MEASURES: dict[str, Callable[[Place, Effort], Coroutine[None, None, list[Line]]]] = {
    "append": sequential.appends,
    "step": sequential.steps,
    "operation": sequential.operations,
    "throughput": throughput,
    "wake": waking,
    "recovery": recovery,
    "loading": loading,
    "growth": growth,
    "import": importing,
    "idle": idling,
    "waiting": waiting,
    "timers": timers,
    "conversation": conversation,
    "gate": gate,
}

# Asked for by name alone: they take minutes, and most are held against time, not a floor.
APART = frozenset(("waiting", "timers", "conversation", "gate"))
