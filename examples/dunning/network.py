"""A slow network in front of the bank: in the same room, all is over before anyone can kill a worker."""

import httpx

from examples.dunning.waiting import tick


def far_away(inner: httpx.AsyncBaseTransport, *, ms: int) -> httpx.AsyncBaseTransport:
    """`inner`, with a network in between on which a request and its answer together take `ms` milliseconds."""
    return _FarAway(inner, ms / 1000) if ms else inner


class _FarAway(httpx.AsyncBaseTransport):
    """Most of the time goes by on the way back: the send window of a short lease is short."""

    def __init__(self, inner: httpx.AsyncBaseTransport, seconds: float) -> None:
        self._inner, self._seconds = inner, seconds

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await tick(self._seconds / 5)
        answer = await self._inner.handle_async_request(request)
        await tick(self._seconds * 4 / 5)
        return answer

    async def aclose(self) -> None:
        await self._inner.aclose()
