"""A notification to a webhook: one POST, signed, within a time, and nothing of it blocks the event loop.

The signature is over id, time and body, so that a receiver can tell what is ours, what is old, and what it has already.
Redirects are not followed: what is signed goes where it was meant to go, or nowhere.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from email.utils import parsedate_to_datetime
from functools import cache
from hashlib import sha256
from hmac import new as hmac
from urllib.parse import urlsplit

# What a receiver may say before its answer's body, and what of that is kept for people.
_MOST_HEADERS, SHOWN = 65_536, 300
LONGEST_WAIT_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one delivery. `wait_s` is how long the receiver asked to be left alone."""

    delivered: bool
    said: str
    wait_s: float = 0.0


def signed(id: str, at_s: int, body: bytes, secret: str) -> dict[str, str]:
    """The headers that a receiver goes by; without a secret there is no signature."""
    headers = {"Outlive-Id": id, "Outlive-Timestamp": str(at_s)}
    if secret:
        told = b"%s.%d.%s" % (id.encode(), at_s, body)
        headers["Outlive-Signature"] = f"v1={hmac(secret.encode(), told, sha256).hexdigest()}"
    return headers


async def post(url: str, headers: Mapping[str, str], body: bytes, *, within_s: float, at_s: int) -> Answer:
    """Send it, and say what came of it: only an answer of 2xx is a delivery. Raises nothing that a network can do."""
    try:
        async with asyncio.timeout(within_s):
            return await _exchange(url, headers, body, at_s)
    except TimeoutError:
        return Answer(False, f"no answer within {within_s:g} s")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        why = str(error) or type(error).__name__
        return Answer(False, f"{type(error).__name__}: {why}")


async def _exchange(url: str, headers: Mapping[str, str], body: bytes, at_s: int) -> Answer:
    parts = urlsplit(url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    reader, writer = await asyncio.open_connection(
        host, parts.port or (443 if secure else 80), ssl=_trust() if secure else None, limit=_MOST_HEADERS
    )
    try:
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        whole = {
            "Host": parts.netloc, "Content-Type": "application/json", "Content-Length": str(len(body)),
            "User-Agent": "outlive", "Connection": "close", **headers,
        }  # fmt: skip
        head = "".join(f"{name}: {value}\r\n" for name, value in whole.items())
        writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        await writer.drain()
        status, reason, told = await _head(reader)
        said = b""
        # The status is the answer; what comes after it is for people, and not waited for.
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(1.0):
                said = await reader.read(SHOWN)
    finally:
        writer.transport.abort()
    text = " ".join(said.decode("utf-8", "replace").split())
    shown = f"{status} {reason} {text}".strip()[:SHOWN]
    if 300 <= status < 400:
        shown = f"{status} {reason}: redirects are not followed".strip()
    return Answer(200 <= status < 300, shown, _asked_for(told.get("retry-after"), at_s))


async def _head(reader: asyncio.StreamReader) -> tuple[int, str, Mapping[str, str]]:
    """Status, reason and headers of the answer; what is said before it (1xx) is passed over."""
    while True:
        first, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        version, _, line = first.decode("latin-1").partition(" ")
        code, _, reason = line.partition(" ")
        if not version.startswith("HTTP/1.") or not code.isdigit() or len(code) != 3:
            raise ValueError(f"what answers does not speak HTTP/1.1: {first[:80]!r}")
        if int(code) >= 200:
            return (
                int(code),
                reason,
                {name.lower(): str(value) for name, value in BytesHeaderParser().parsebytes(rest).items()},
            )


def _asked_for(given: str | None, at_s: int) -> float:
    """Retry-After, in seconds or as a date; a day at most."""
    text = (given or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST_WAIT_S)
    try:
        return min(max(parsedate_to_datetime(text).timestamp() - at_s, 0.0), LONGEST_WAIT_S)
    except (ValueError, OverflowError):
        return 0.0


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()
