"""A notification to a command: JSON on its stdin, its exit code is the answer, and its time is limited."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress

from outlive.duty.webhook import SHOWN, Answer

_PATIENCE_S = 2.0


async def run_command(command: Sequence[str], body: bytes, *, within_s: float) -> Answer:
    """Start it, without a shell, and wait for its end: exit code 0 is a delivery. Raises nothing that a command can do.

    Past its time it is killed with all that it started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            process_group=0,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return Answer(False, f"it cannot be started: {error}")
    said = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async with asyncio.TaskGroup() as group:
                group.create_task(_feed(process, body))
                group.create_task(_listen(process, said))
            code = await process.wait()
    except TimeoutError:
        await _put_down(process)
        return Answer(False, f"it did not end within {within_s:g} s")
    except BaseException:
        await _put_down(process)
        raise
    text = " ".join(said.decode("utf-8", "replace").split())
    return Answer(code == 0, f"exit code {code} {text}".strip()[:SHOWN])


async def _put_down(process: asyncio.subprocess.Process) -> None:
    """It leads a group of its own, which is there while any of those that it started is.

    The loop keeps it until its pipe has ended; who has left the group may hold that, and is not waited for long.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            await _listen(process, bytearray(SHOWN))
            await process.wait()


async def _feed(process: asyncio.subprocess.Process, body: bytes) -> None:
    """A command may end without having read what it was told."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(body)
        await process.stdin.drain()
    process.stdin.close()


async def _listen(process: asyncio.subprocess.Process, said: bytearray) -> None:
    """All is read, so that it is not held up; the beginning is kept."""
    assert process.stdout is not None
    while part := await process.stdout.read(65_536):
        if len(said) < SHOWN:
            said += part
