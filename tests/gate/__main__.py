"""`python -m tests.gate [WORD …]` plays the cases that have these words in their name, on SQLite."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import traceback
from pathlib import Path

from outlive.testing.ground import File
from outlive.testing.world import quiet_about_the_dead
from tests.gate.cases import CASES
from tests.gate.play import play, surprises


async def _show(words: list[str]) -> int:
    quiet_about_the_dead(asyncio.get_running_loop())
    bad = 0
    with tempfile.TemporaryDirectory() as directory:
        for number, case in enumerate(
            one for one in CASES if all(word in one.name for word in words if not word.startswith("-"))
        ):
            here = Path(directory) / str(number)
            here.mkdir()
            places = iter(range(9))
            try:
                lived = await play(case, lambda here=here, places=places: File(here / f"{next(places)}.db"), here)
            except BaseException:
                print(f"!! {case.name}\n" + traceback.format_exc(limit=-3))
                bad += 1
                continue
            found = surprises(case, lived)
            bad += bool(found)
            if found or "-v" in sys.argv:
                print(
                    f"{'XX' if found else 'ok'} {case.name}\n     {lived.told} {lived.choices or ''} {lived.executed}"
                )
            for one in found:
                print("     ^^", one)
            if "-l" in sys.argv:
                print("\n".join(lived.log))
    print(bad, "bad")
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(asyncio.run(_show(sys.argv[1:])))
