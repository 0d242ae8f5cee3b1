"""The Restate server, and the address of its workers: what a load balancer is where there is more than this machine.

A new connection leads to the newest worker that takes it, as one does that was told of a rollout.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress

from conformance.adapters import common

INGRESS, ADMIN, DOOR = (int(os.environ[f"CONFORMANCE_{name}"]) for name in ("PORT", "PORT2", "PORT3"))


def workers() -> list[int]:
    """The ports of all workers that have ever served, the newest first."""
    files = sorted(common.HOME.glob("serves-*"), key=lambda file: file.stat().st_mtime_ns, reverse=True)
    return [int(file.read_text("utf-8") or 0) for file in files]


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(2**16):
            sink.write(data)
            await sink.drain()
    sink.close()


async def lead(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
    for port in workers():
        with suppress(OSError):
            far, out = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(near, out), pump(far, back))
            return
    back.close()


def program() -> str:
    """The server as npm has installed it for this kind of machine."""
    packages = os.path.join(sys.prefix, "node_modules", "@restatedev")
    [found] = [folder for folder in os.listdir(packages) if folder.startswith("restate-server-")]
    return os.path.join(packages, found, "bin", "restate-server")


async def main() -> None:
    settings = {
        "BASE_DIR": str(common.HOME / "restate"), "NODE_NAME": "one", "BIND_IP": "127.0.0.1",
        "LISTEN_MODE": "tcp", "USE_RANDOM_PORTS": "true",
        "INGRESS__BIND_PORT": str(INGRESS), "ADMIN__BIND_PORT": str(ADMIN),
        "WORKER__INVOKER__HTTP2_KEEP_ALIVE_INTERVAL": f"{common.LEASE_S / 3:g}s",
        "WORKER__INVOKER__HTTP2_KEEP_ALIVE_TIMEOUT": f"{common.LEASE_S * 2 / 3:g}s",
        "DISABLE_TELEMETRY": "true", "LOG_FILTER": "warn", "LOG_DISABLE_ANSI_CODES": "true",
    }  # fmt: skip
    server = subprocess.Popen(
        [program()], env=os.environ | {f"RESTATE_{name}": said for name, said in settings.items()}
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.terminate)
    async with await asyncio.start_server(lead, "127.0.0.1", DOOR):
        sys.exit(await asyncio.to_thread(server.wait))


if __name__ == "__main__":
    asyncio.run(main())
