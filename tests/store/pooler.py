"""PgBouncer in transaction mode before the server: each transaction may get another connection of a few."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.store.postgres_server import own_folder, tied

_CONFIGURATION = """
[databases]
postgres = host={host} dbname=postgres user=postgres connect_query='set search_path to {schema}'
[pgbouncer]
pool_mode = transaction
listen_port = 6432
listen_addr =
unix_socket_dir = {folder}
logfile = {folder}/log
auth_type = any
ignore_startup_parameters = options,extra_float_digits
"""


def binary() -> str | None:
    """Where PgBouncer is, if it is installed."""
    return shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")


NEEDED = [
    pytest.mark.long,
    pytest.mark.skipif(
        binary() is None and "CI" not in os.environ, reason="PgBouncer is not installed (Debian: pgbouncer)"
    ),
]


class Pooler:
    """One before a server; it runs between `start` and `stop`. `url` leads through it."""

    def __init__(self, folder: Path, user: str | None, schema: str) -> None:
        self.url = f"postgresql://postgres@/postgres?host={quote(str(folder), safe='')}&port=6432&schema={schema}"
        self._folder, self._user, self._running = folder, user, ExitStack()

    def start(self) -> None:
        """Return when it takes connections."""
        program = binary()
        assert program is not None
        output = self._folder / "output"
        with ExitStack() as stack:
            command = [program, "-q", str(self._folder / "ini")]
            process = stack.enter_context(tied(command, output, self._user, end="TERM"))
            while not self._listens():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.01)
                    raise RuntimeError(f"PgBouncer did not start: {output.read_text()}")
            self._running = stack.pop_all()

    def stop(self) -> None:
        """All connections are cut, whatever is on its way."""
        self._running.close()

    def _listens(self) -> bool:
        """Its socket is there a moment before it listens."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self._folder / ".s.PGSQL.6432"))
            except OSError:
                return False
        return True


@contextmanager
def pooler(url: str, schema: str, **settings: object) -> Iterator[Pooler]:
    """A started one of the test's own."""
    [host] = parse_qs(urlsplit(url).query)["host"]
    lines = {"default_pool_size": 4, "max_client_conn": 200, **settings}
    with own_folder() as (folder, user):
        text = _CONFIGURATION.format(host=host, folder=folder, schema=schema)
        (folder / "ini").write_text(text + "".join(f"{name} = {value}\n" for name, value in lines.items()))
        here = Pooler(folder, user, schema)
        here.start()
        try:
            yield here
        finally:
            here.stop()


@contextmanager
def pooled(url: str, schema: str) -> Iterator[str]:
    """The URL that leads through a pooler of its own; it runs only inside."""
    with pooler(url, schema) as here:
        yield here.url
