"""What the programs of the engines share: verbs in lines of JSON, what a step does, and the loop of those that are
asynchronous. The standard library only: it is imported in the environment of any engine.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
# Words of a model's answer: as many of them, drawn by number, as make up about what it says in one go. Each answer is
# another one, and can be compressed as text can, no more.
WORDS = (
    "the a of to and in is that for was with as on be by this from or an are not has been it which were will at their"
    " have customer invoice reminder overdue account payment May letter answered twice amount balance after before"
    " because however should therefore question address department number received transferred agreed postponed unless"
    " approved contract period delivery complaint refund bank holiday"
).split()
LONG = 100
AFTER = 1_000_000
"""Added to the number of a line that a run leaves after what it has waited for."""

_handles: dict[str, int] = {}


def options() -> dict[str, Any]:
    """What the program was started with, after its role."""
    found: dict[str, Any] = json.loads(sys.argv[2])
    return found


def answer(file: str, number: int) -> dict[str, Any]:
    """What a step does and gives: one line in the file, in one write, and some 600 bytes."""
    handle = _handles.get(file)
    if handle is None:
        handle = _handles[file] = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{number} {os.getpid()} {time.perf_counter()}\n".encode())
    return {"text": text(number), "tokens": number}


def text(number: int) -> str:
    """Some 600 letters, the same for the same number."""
    drawn = hashlib.shake_256(str(number).encode()).digest(LONG)
    return " ".join(WORDS[one % len(WORDS)] for one in drawn)


def moment() -> dict[str, float]:
    """The clock of all processes of this machine, for what a verb gives."""
    return {"at": time.perf_counter()}


def versions(*names: str) -> dict[str, str]:
    """What is installed, for the verb `about`."""
    return {name: version(name) for name in names}


def memory() -> dict[str, float]:
    """Megabytes that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"mb": pages * os.sysconf("SC_PAGESIZE") / 2**20}


def speak(verbs: dict[str, Callable[..., Any]]) -> None:
    """Say that we are ready, then do what is asked, one line for each, until there is nobody any more."""
    print(json.dumps({"ready": 1}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            told = (verbs | {"memory": memory})[asked.pop("do")](**asked) or {}
        except Exception:  # noqa: BLE001 - whoever asked is told, and decides
            told = {"error": traceback.format_exc()}
        print(json.dumps(told), flush=True)
    # Threads of an engine may wait for something that will not come.
    os._exit(0)


class Loop:
    """An event loop on a thread of its own, for engines that are asynchronous."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        """Wait for it here."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(300)

    def begin(self, what: Coroutine[Any, Any, Any]) -> None:
        """Let it go on by itself; when it fails, the process ends and says why."""

        async def watched() -> None:
            try:
                await what
            except BaseException:  # noqa: BLE001 - a task would end in silence
                traceback.print_exc()
                os._exit(1)

        asyncio.run_coroutine_threadsafe(watched(), self._loop)
