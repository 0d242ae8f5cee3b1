"""PgBouncer in transaction mode before the server: each transaction may get another connection of a few."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from tests.store.postgres_server import tied, unprivileged

_CONFIGURATION = """
[databases]
postgres = host={host} dbname=postgres user=postgres connect_query='set search_path to {schema}'
[pgbouncer]
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
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


@contextmanager
def pooled(url: str, schema: str) -> Iterator[str]:
    """The URL that leads through a pooler of its own; it runs only inside."""
    [host] = parse_qs(urlsplit(url).query)["host"]
    program, user = binary(), unprivileged()
    assert program is not None
    folder = Path(tempfile.mkdtemp(prefix="outlive-pool-"))
    try:
        (folder / "ini").write_text(_CONFIGURATION.format(host=host, folder=folder, schema=schema))
        if user is not None:
            shutil.chown(folder, user)
        with tied([program, "-q", str(folder / "ini")], folder / "output", user, end="TERM") as process:
            while not (folder / ".s.PGSQL.6432").exists():
                assert process.poll() is None, (folder / "output").read_text()
            yield f"postgresql://postgres@/postgres?host={quote(str(folder), safe='')}&port=6432&schema={schema}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
