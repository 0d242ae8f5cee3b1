"""A PostgreSQL replica is enough to replay from: a real hot standby, which takes no write at all."""

import asyncio
import shutil
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import ReadOnlySqlTransaction

from outlive.cli import codes
from outlive.testing import postgres
from tests.replay.conftest import Cli
from tests.replay.releases import Releases
from tests.replay.test_verb import CALL, judged, replayed


def test_a_standby_is_read(cli: Cli, tmp_path: Path) -> None:
    with postgres.own_folder() as (primary, user), postgres.own_folder() as (standby, _):
        postgres.make_cluster(primary / "data", user)
        with postgres.running(primary / "data", primary, user, primary / "log"):
            made = Releases(tmp_path, postgres.url_of(primary))
            first, other = made.release(), made.release((CALL, 'await run.call(charge, "INV-8", cents)'))
            asyncio.run(made.serve(first, "r1"))
            postgres.copy_cluster(primary, standby / "data", user)
            with postgres.running(standby / "data", standby, user, standby / "log", hot_standby="on"):
                made.store = postgres.url_of(standby)
                with psycopg.connect(made.store, autocommit=True) as connection:
                    with pytest.raises(ReadOnlySqlTransaction):
                        connection.execute("create table written (x int)")
                code, found = replayed(cli, made, first)
                assert (code, judged(found)["r1"]["verdict"]) == (codes.OK, "same")
                code, found = replayed(cli, made, other)
                assert (code, judged(found)["r1"]["verdict"]) == (codes.FAILED, "breaks")
        made.forget()
        shutil.rmtree(standby / "data", ignore_errors=True)
