"""Freezing a process outside of its commits: frozen inside one, it stops every writer of a SQLite file."""

import os
import signal
from pathlib import Path

from outlive.store.sqlite.turnstile import holder
from tests.kills.waiting import nap

SQLITE = "sqlite:///"


def writer(store: str) -> int | None:
    """The process that has the write lock of the store's file; None over a server, which commits by itself."""
    if not store.startswith(SQLITE):
        return None
    database = Path(store.removeprefix(SQLITE))
    return holder(Path(f"{database}-turn"), database)


def freeze() -> None:
    """Stop this process, as soon as none of its threads is inside a commit."""
    while writer(os.environ["OUTLIVE_STORE"]) == os.getpid():
        nap()
    os.kill(os.getpid(), signal.SIGSTOP)
