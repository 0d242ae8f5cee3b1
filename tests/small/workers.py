"""Workers that begin at once: `python -m tests.small.workers` has loaded what they need, and each is a fork of it.

Each line that it is told is one more worker; it answers with the process id. Loading costs four seconds of a core, and
they are spent once for all that are killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import tests.small.reader  # noqa: F401 - what a worker would load itself, of which its pydantic-ai is nearly all
from outlive.cli import main

if __name__ == "__main__":
    assert threading.active_count() == 1, "a fork has none of the threads"
    # Who was killed is waited for by nobody.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin.readline():
        if (pid := os.fork()) == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # The other end reads process ids.
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
            sys.argv = ["outlive", "worker", "tests.small.reader:app"]
            main()
            sys.exit()
        print(pid, file=sys.stdout, flush=True)
