"""A replica of a server that follows it asynchronously, can fall behind, and is promoted; and copies made by a dump."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from outlive.testing import postgres
from tests.baddays.server import Server
from tests.baddays.waiting import until_now


class Replica:
    """Follows its primary until it is cut off; `promote` makes it a primary itself."""

    def __init__(self, primary: Server, server: Server) -> None:
        self.primary, self.server = primary, server

    def follow(self) -> None:
        """Return when it has all that is committed on the primary now."""
        [(end,)] = self.primary.ask("select pg_current_wal_lsn()")

        def caught_up() -> bool:
            return self.server.ask("select pg_last_wal_replay_lsn() >= %s::pg_lsn", end) == [(True,)]

        until_now(caught_up, "the replica has caught up")

    def fall_behind(self) -> None:
        """What is committed on the primary from here on never reaches it. It has all that was committed before."""
        self.follow()
        self.server.ask("alter system set primary_conninfo = ''")
        self.server.ask("select pg_reload_conf()")
        until_now(lambda: self.server.ask("select pid from pg_stat_wal_receiver") == [], "it receives nothing more")

    def promote(self) -> None:
        """Return when it takes writes."""
        assert self.server.ask("select pg_promote()") == [(True,)]


@contextmanager
def replica_of(primary: Server) -> Iterator[Replica]:
    """A started replica, asynchronous as by default."""
    with postgres.own_folder() as (folder, user):
        data = folder / "data"
        postgres._run(
            "pg_basebackup", "-D", data, "-h", str(primary.folder), "-U", "postgres", "-X", "stream", "-c", "fast",
            "--no-sync", user=user,
        )  # fmt: skip
        (data / "standby.signal").touch()
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = 'host={primary.folder} user=postgres'\n")
        server = Server(folder, data, user, {})
        server.start()
        try:
            yield Replica(primary, server)
        finally:
            server.stop()


def dump(server: Server) -> str:
    """All that is in it now, as SQL."""
    program = [postgres._binary("pg_dump"), "-h", str(server.folder), "-U", "postgres", "postgres"]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


def restore(server: Server, dumped: str) -> None:
    """Put a dump into an empty server, which is another database then."""
    program = [
        postgres._binary("psql"),
        "-h",
        str(server.folder),
        "-U",
        "postgres",
        "-v",
        "ON_ERROR_STOP=1",
        "postgres",
    ]
    subprocess.run(program, input=dumped, capture_output=True, text=True, check=True)
