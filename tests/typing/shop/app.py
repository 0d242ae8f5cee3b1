"""The one place that names the application. It imports no agent: `include` names them, so there is no cycle."""

from __future__ import annotations

from outlive import Outlive
from tests.typing.shop.deps import Deps, open_deps

AGENTS = [
    f"tests.typing.shop.{name}" for name in ("orders", "stock", "letters", "quotes", "closing", "returns")
]  # fmt: skip

app: Outlive[Deps] = Outlive(deps=open_deps, include=AGENTS)
