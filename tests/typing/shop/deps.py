"""What the shop's tools need: a supplier and a post office, in memory. Both recognise a key that they have seen."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reply:
    """What the supplier answers: an HTTP status and the number of the order."""

    status: int
    number: str = ""


@dataclass
class Supplier:
    """Takes orders, and finds them again by the key that came with them."""

    orders: dict[str, str] = field(default_factory=dict[str, str])

    async def order(self, isbn: str, copies: int, *, key: str) -> Reply:
        if copies > 1000:
            return Reply(409)
        self.orders.setdefault(key, f"S-{len(self.orders) + 1}")
        return Reply(201, self.orders[key])

    async def find(self, key: str) -> Reply:
        return Reply(200, self.orders[key]) if key in self.orders else Reply(404)


@dataclass
class Post:
    """Sends letters; blocking, as many libraries are. A letter with a key that it knows is not sent again."""

    letters: dict[str, str] = field(default_factory=dict[str, str])

    def send(self, to: str, text: str, *, key: str) -> str:
        self.letters.setdefault(key, f"{to}: {text}")
        return key[:8]


@dataclass
class Deps:
    """Opened once per worker."""

    supplier: Supplier
    post: Post


@asynccontextmanager
async def open_deps() -> AsyncGenerator[Deps, None]:
    yield Deps(Supplier(), Post())
