"""Absurd: a run is a task of steps on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from absurd_sdk import Absurd

from bench.peers import speech

GIVEN = speech.options()


def works(params: Any, ctx: Any) -> int:
    kept = []
    for number in range(params["steps"]):
        kept.append(ctx.step("step", lambda number=number: speech.answer(params["file"], number)))
    return len(kept)


def hears(params: Any, ctx: Any) -> None:
    file, number = params["file"], params["number"]
    ctx.step("before", lambda: speech.answer(file, number))
    ctx.await_event(f"go:{number}")
    ctx.step("after", lambda: speech.answer(file, number + speech.AFTER))


app = Absurd(GIVEN["store"])
app.register_task("works")(works)
app.register_task("hears")(hears)


def setup() -> None:
    program = str(Path(sys.executable).with_name("absurdctl"))
    for verb in (["init"], ["create-queue", "default"]):
        environment = os.environ | {"ABSURD_DATABASE_URL": GIVEN["store"]}
        subprocess.run([program, *verb], env=environment, check=True, capture_output=True)


def serve() -> None:
    words = {"concurrency": GIVEN["slots"], "claim_timeout": GIVEN["lease"], "poll_interval": GIVEN.get("poll", 0.25)}
    threading.Thread(target=app.start_worker, kwargs=words, daemon=True).start()


def start(run: str, steps: int, file: str) -> dict[str, float]:
    began = speech.moment()
    app.spawn("works", {"steps": steps, "file": file}, idempotency_key=run)
    return began


def hear(first: int, count: int, file: str) -> None:
    for number in range(first, first + count):
        app.spawn("hears", {"number": number, "file": file})


def send(number: int) -> dict[str, float]:
    began = speech.moment()
    app.emit_event(f"go:{number}", {})
    return began


if __name__ == "__main__":
    speech.speak({"about": lambda: speech.versions("absurd-sdk", "psycopg"), "setup": setup, "serve": serve,
                  "start": start, "hear": hear, "send": send})  # fmt: skip
