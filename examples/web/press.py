"""What becomes of a report that is printed: the press takes the order on, and tells by a signed webhook how it went.

The signature is the HMAC-SHA256 of the time and the body under a secret that both sides have.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from datetime import timedelta

from pydantic import BaseModel

from examples.web.app import app
from examples.web.waiting import seconds
from outlive import Operation, Run

FRESH_S = 300


class Printed(BaseModel):
    """What the press has printed."""

    copies: int
    shelf: str


class Told(BaseModel):
    """What the press tells: `event` is its own number of it; without `printed` it has not printed, and will not."""

    event: str
    order: str
    printed: Printed | None = None


def signature(secret: str, at: str, body: bytes) -> str:
    """What the press writes over its webhook."""
    return hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()


def genuine(headers: Mapping[str, str], body: bytes) -> bool:
    """Whether it is signed with our secret, and not long ago. Without a secret nothing is."""
    secret, at = os.environ.get("PRESS_SECRET", ""), headers.get("press-timestamp", "")
    if not secret or not at.isdecimal() or len(at) > 12 or abs(seconds() - int(at)) > FRESH_S:
        return False
    given = headers.get("press-signature", "")  # as bytes: who forges one may write anything
    return hmac.compare_digest(signature(secret, at, body).encode(), given.encode())


@app.tool()
async def order(op: Operation[None], text: str) -> Printed:
    """Where the press would be called; `op.id` is what it names when it tells."""
    return op.pending(until=timedelta(days=7))


@app.agent()
async def printing(run: Run[None], text: str) -> str:
    printed = await run.call(order, text)
    return f"{printed.copies} copies on {printed.shelf}"
