"""HMAC-SHA256 with the few keys that are used over and over: a key is prepared once."""

from __future__ import annotations

import hmac
from functools import lru_cache


def mac(key: bytes, message: bytes) -> bytes:
    """The keyed digest of a message."""
    begun = _begun(key).copy()
    begun.update(message)
    return begun.digest()


@lru_cache(maxsize=256)
def _begun(key: bytes) -> hmac.HMAC:
    return hmac.new(key, digestmod="sha256")
