"""What it costs to import us, in fresh processes: milliseconds, and the memory of the process afterwards."""

from __future__ import annotations

import asyncio
import sys

from bench.effort import Effort
from bench.figures import Line, Spread
from bench.places import Place
from bench.processes import ROOT, clean

TIME_LIMIT_MS, MEMORY_LIMIT_MB = 250.0, 45.0
PROCESSES = 9

_AGENT = """
from outlive import Operation, Outlive, Run
app = Outlive()
@app.tool()
async def tool(op: Operation[None], n: int) -> int: return n
@app.agent()
async def agent(run: Run[None], n: int) -> int: return await run.call(tool, n)
"""
# Name, what is written there, the program, and the libraries that it cannot do without.
_ALWAYS = [
    ("import", "`import outlive`", "import outlive", ""),
    ("import, agent", "an application with a tool and an agent", _AGENT, "import asyncio, pydantic"),
]
_STORES = {
    "sqlite": ("import, store", "the same, and the SQLite store", _AGENT + "import outlive.store.sqlite.store",
               "import asyncio, pydantic, sqlite3"),
    "postgres": ("import, store", "the same, and the PostgreSQL store", _AGENT + "import outlive.store.postgres.store",
                 "import asyncio, pydantic, psycopg, psycopg_pool"),
}  # fmt: skip

_MEASURED = """
import time
began = time.perf_counter()
{program}
took = time.perf_counter() - began
memory = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(took * 1000, int(memory.split()[1]) / 1024)
"""


async def importing(place: Place, effort: Effort) -> list[Line]:
    """Ours, and as its floor the libraries alone; in turns, the files being in memory."""
    lines = []
    programs = [*_ALWAYS, _STORES[place.store]] if place.sqlite else [_STORES[place.store]]
    for name, what, program, libraries in programs:
        await _run(program)
        each = [(await _run(program), await _run(libraries)) for _ in range(effort.scaled(PROCESSES))]
        (took, memory), (took_alone, memory_alone) = (
            [Spread.of(values) for values in zip(*side, strict=True)] for side in zip(*each, strict=True)
        )
        lines += [
            Line(name, place.store, what, " ms", took, took_alone if libraries else None,
                 limit=TIME_LIMIT_MS, limit_unit=" ms"),
            Line(f"{name}, memory", place.store, f"{what}: memory of the process", " MB", memory, memory_alone,
                 limit=MEMORY_LIMIT_MB, limit_unit=" MB"),
        ]  # fmt: skip
    return lines


async def _run(program: str) -> tuple[float, float]:
    """Milliseconds and megabytes of one process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _MEASURED.format(program=program), cwd=ROOT, env=clean(), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError("it could not be imported")
    took, memory = output.split()
    return float(took), float(memory)
