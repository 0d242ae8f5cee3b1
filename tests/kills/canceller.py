"""A process that cancels one run after the other with the real command, as it is told to on its input.

A line of the input is the id of a run; for each it prints one line: the exit code of `outlive cancel`.
"""

import contextlib
import io
import sys

from outlive.cli import app


def cancelled(run: str) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            app(["cancel", run, "--why", "enough", "--who", "ada", "--wait", "60s"])
        except SystemExit as left:
            return int(left.code or 0)
    return 0


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        print(cancelled(line.strip()), flush=True)
