"""`python -m tests.gate [WORD …]` plays the cases that have these words in their name, on SQLite; `-v` shows all of
them, `-l` their logs too. `python -m tests.gate report` writes docs/deploys-faults.md.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import traceback
from pathlib import Path

from outlive.testing.ground import File
from outlive.testing.world import quiet_about_the_dead
from tests.gate import page
from tests.gate.case import Case
from tests.gate.cases import CASES
from tests.gate.play import play


async def _show(words: list[str], flags: set[str]) -> int:
    quiet_about_the_dead(asyncio.get_running_loop())
    wanted = [one for one in CASES if all(word in one.name for word in words)]
    bad = sum([await _played(case, flags) for case in wanted])
    print(f"{bad} of {len(wanted)} are not as they should be")
    return min(bad, 1)


async def _played(case: Case, flags: set[str]) -> bool:
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        try:
            played = await play(case, lambda: File(here / f"{next(numbers)}.db"), here)
        except Exception:  # noqa: BLE001 - whatever a case raises is shown, and the next one played
            print(f"!! {case.name}\n{traceback.format_exc(limit=-3)}")
            return True
    wrong = played.wrong()
    if wrong or flags:
        print("XX" if wrong else "ok", played.told(), *played.lived.executed)
    for one in wrong:
        print("     ^^", one)
    if "-l" in flags:
        print("\n".join(played.lived.log))
    return bool(wrong)


if __name__ == "__main__":
    given = sys.argv[1:]
    if given == ["report"]:
        sys.exit(page.write())
    sys.exit(asyncio.run(_show([one for one in given if one[0] != "-"], {one for one in given if one[0] == "-"})))
