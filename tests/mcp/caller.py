"""An application that calls the tools of a desk: `DESK` is the directory of its server, `DESK_URL` where it listens."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from outlive import Outlive, Run, Tool
from outlive.errors import OutliveError
from outlive.mcp import Http, Stdio, ToolError, ToolServer

ROOT = Path(__file__).parents[2]
TOOLS: dict[str, Tool[[dict[str, JsonValue]], Any]] = {}
Calls = list[tuple[str, dict[str, JsonValue]]]


def at(place: Path, url: str = "", **more: Any) -> Stdio | Http:
    if url:
        return Http(url, **more)
    return Stdio(sys.executable, "-m", "tests.mcp.desk", str(place), cwd=ROOT, **more)


async def calls(run: Run[None], asked: Calls) -> list[str]:
    """Make them one after another; what each of them gave."""
    given = []
    for name, arguments in asked:
        try:
            given.append((await run.call(TOOLS[name], arguments)).text)
        except ToolError as error:
            given.append(f"failed: {error}")
        except OutliveError as error:
            given.append(f"{type(error).__name__}: {error}")
    return given


def declared(app: Outlive[None], place: Path, url: str = "", **more: Any) -> ToolServer:
    """The desk with its tools, as an author would declare them."""
    server = ToolServer(app, "desk", at(place, url, **more))
    soon = timedelta(seconds=1)
    TOOLS.clear()
    TOOLS.update(
        search=server.tool("search", effect="read"), label=server.tool("label", settle_after=soon),
        refund=server.tool("refund", settle_after=soon), refuse=server.tool("refuse"), picture=server.tool("picture"),
        whoami=server.tool("whoami", effect="read"), quick=server.tool("none", timeout=soon),
    )  # fmt: skip
    app.agent(name="calls")(calls)
    return server


if "DESK" in os.environ:
    app = Outlive()
    declared(app, Path(os.environ["DESK"]), os.environ.get("DESK_URL", ""))
