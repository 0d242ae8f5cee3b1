"""A server of tools as others write them, over stdio or with a port HTTP: `python -m tests.mcp.desk DIRECTORY [PORT]`.

What it does it writes into a file, so that the tests count what was done outside. A file `wait` makes a call wait until
it is gone, after it has acted; `die` makes the server die there, `drop` takes hints away, `gone` a tool.
"""

import base64
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations

PLACE = Path(sys.argv[1])
server = MCPServer("desk")
(PLACE / "started").touch()
DROPPED = (PLACE / "drop").exists()


def hints(*, read_only: bool = False, idempotent: bool = False) -> ToolAnnotations | None:
    return None if DROPPED else ToolAnnotations(read_only_hint=read_only, idempotent_hint=idempotent)


async def act(what: str, ctx: Context[Any, Any]) -> None:
    """Outside, something has happened."""
    key = dict(ctx.request_context.meta or {}).get("outlive/key")
    with (PLACE / "acts").open("a") as acts:
        acts.write(json.dumps({"what": what, "key": key, "pid": os.getpid()}) + "\n")
    if (PLACE / "die").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    while (PLACE / "wait").exists():  # noqa: ASYNC110 - another process takes it away
        await anyio.sleep(0.02)


@server.tool(annotations=hints(read_only=True))
async def search(query: str, ctx: Context[Any, Any]) -> list[str]:
    """Search invoices."""
    await act(f"search {query}", ctx)
    return [f"{query}-1", f"{query}-2"]


@server.tool(annotations=hints(idempotent=True))
async def label(invoice: str, ctx: Context[Any, Any]) -> str:
    """Label an invoice."""
    await act(f"label {invoice}", ctx)
    return f"{invoice} labelled"


@server.tool()
async def refund(invoice: str, cents: int, ctx: Context[Any, Any]) -> dict[str, Any]:
    """Refund an invoice."""
    await act(f"refund {invoice} {cents}", ctx)
    return {"invoice": invoice, "cents": cents}


@server.tool()
async def refuse(why: str, ctx: Context[Any, Any]) -> str:
    """Fail."""
    await act(f"refuse {why}", ctx)
    raise ValueError(why)


@server.tool(structured_output=False)
async def picture(size: int) -> list[Any]:
    """Show a picture."""
    return ["a picture", Image(data=base64.b64decode(b"AAAA") * size, format="png")]


@server.tool()
async def whoami(ctx: Context[Any, Any]) -> str:
    """Tell with which token the server is used."""
    return os.environ.get("DESK_TOKEN") or (ctx.headers or {}).get("authorization", "nobody")


if (PLACE / "gone").exists():
    server.remove_tool("label")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
