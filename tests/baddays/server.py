"""A PostgreSQL server that a test may stop, kill and start again, with settings of its own and nobody else on it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

from outlive.store.postgres.connection import place_of
from tests.baddays.waiting import until_now
from tests.store.postgres_server import make_cluster, own_folder, running, url_of


class Server:
    """One cluster; it runs between `start` and `stop` or `kill`."""

    def __init__(self, folder: Path, data: Path, user: str | None, settings: dict[str, str]) -> None:
        self.folder, self.data, self.settings = folder, data, settings
        self.url = url_of(folder)
        self._user, self._starts, self._running = user, 0, ExitStack()

    def start(self, **changed: str) -> None:
        """Return when it answers."""
        self._starts += 1
        log = self.folder / f"log-{self._starts}"
        with ExitStack() as stack:
            stack.enter_context(
                running(self.data, self.folder, self._user, log, end="INT", **(self.settings | changed))
            )
            self._running = stack.pop_all()

    def stop(self) -> None:
        """A fast shutdown: all connections are ended, what is committed is kept."""
        self._running.close()

    def kill(self) -> None:
        """SIGKILL for the postmaster and everything that it started."""
        everyone = [self.postmaster(), *self._processes()]
        for pid in everyone:
            signalled(pid, signal.SIGKILL)
        self.ended(everyone)

    def ended(self, everyone: Sequence[int]) -> None:
        """Return when the postmaster's processes have gone, ready for the next start."""
        self._running.close()
        until_now(lambda: not any(map(alive, everyone)), "all its processes have gone")
        # It would still say that it is ready.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().splitlines()[0])

    def ask(self, sql: str, *parameters: object) -> list[TupleRow]:
        """One statement of a superuser's, committed: whoever else is there, and whatever the server was told."""
        conninfo, free = place_of(self.url).conninfo, "-c statement_timeout=0 -c lock_timeout=0"
        with psycopg.connect(conninfo, autocommit=True, application_name="test", options=free) as connection:
            cursor = connection.execute(sql.encode(), parameters or None)
            return cursor.fetchall() if cursor.description is not None else []

    def answers(self) -> bool:
        """Whether it lets anybody in."""
        try:
            self.ask("select 1")
        except psycopg.OperationalError:
            return False
        return True

    def backends(self, use: str) -> list[int]:
        """The server processes behind the workers' connections of this use: appends, renewals, or none: the pool."""
        name = f"outlive {use}".strip()
        found = self.ask("select pid from pg_stat_activity where application_name = %s order by pid", name)
        return [int(pid) for (pid,) in found]

    def written(self) -> str:
        """What the server has logged since it was started: what is fatal."""
        return (self.folder / f"log-{self._starts}").read_text()

    def _processes(self) -> list[int]:
        return [int(pid) for (pid,) in self.ask("select pid from pg_stat_activity")]


def signalled(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have gone meanwhile."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def alive(pid: int) -> bool:
    """Whether the process is there and not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def own_server(data: Path | None = None, *, initdb: Sequence[str] = (), **settings: str) -> Iterator[Server]:
    """A started server. `data` is a folder of its user for the cluster, if not the default one."""
    with own_folder() as (folder, user):
        here = Server(folder, data or folder / "data", user, settings)
        make_cluster(here.data, user, *initdb)
        here.start()
        try:
            yield here
        finally:
            here.stop()
