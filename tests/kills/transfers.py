"""The application under the processes that die at each statement of a transaction: money goes from till to safe,
by a tool that writes with the run's record, or beside the start of a run in the caller's own transaction.

Every run moves an amount of its own, a power of two: a sum of them tells which were moved, and whether one was twice.
"""

import os
from dataclasses import dataclass

from outlive import Operation, Outlive, Run
from outlive.app.settings import Settings

app: Outlive[None] = Outlive()

TABLES = (
    "create table if not exists account (name text primary key, cents bigint not null)",
    "create table if not exists movement (run text not null, cents bigint not null)",
    "create table if not exists ordered (run text primary key, cents bigint not null)",
    "insert into account values ('till', 0), ('safe', 0), ('owed', 0)",
)


@dataclass
class Amount:
    """What one run moves."""

    cents: int


def marked(sql: str) -> str:
    """With the parameters as the driver of this store writes them."""
    return sql if Settings.load().store.startswith("sqlite") else sql.replace("?", "%s")


@app.tool(effect="transactional")
async def move(op: Operation[None], cents: int) -> int:
    """Four statements on tables of the user's own; gives what is in the safe then."""
    database = op.connection
    await database.execute(marked("insert into movement values (?, ?)"), (op.run_id, cents))
    await database.execute(marked("update account set cents = cents - ? where name = 'till'"), (cents,))
    await database.execute(marked("update account set cents = cents + ? where name = 'safe'"), (cents,))
    [[held]] = await database.execute("select cents from account where name = 'safe'")
    assert isinstance(held, int)
    return held


@app.agent()
async def moving(run: Run[None], amount: Amount) -> int:
    await run.call(move, amount.cents)
    return amount.cents


def worker_environment(store: str, lease: str = "1s") -> dict[str, str]:
    return {**os.environ, "OUTLIVE_STORE": store, "OUTLIVE_LEASE": lease}
