"""`outlive run`: start a run and drive it here until it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import codes, options
from outlive.cli.screen import MOODS, console, line_text, put, say

if TYPE_CHECKING:
    from outlive.app.inspect import Line
    from outlive.app.operate import Report, Wish
    from outlive.app.outlive import Outlive
    from outlive.app.settings import Settings

EXAMPLES = (
    'outlive run dunning \'{"month": "2026-03"}\' --app shop.app:app',
    "outlive run greet world --app shop.app:app",
    "outlive run dunning @march.json --id dunning-2026-03   # once, however often it is typed",
    "outlive run dunning --id dunning-2026-03               # go on with a run that exists",
)


def run(
    *,
    agent: options.AgentArgument,
    input: options.InputArgument = None,
    app: options.App = None,
    id: options.Id = None,
    queue: options.Queue = "default",
    priority: options.Priority = 0,
    deadline: options.Deadline = None,
    label: options.Labels = None,
    principal: options.Principal = "",
    purpose: options.Purpose = "",
    lease: options.Lease = None,
    concurrency: options.Concurrency = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show the log as it grows.")] = False,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Start a run and drive it here until it ends.

    The result goes to stdout as JSON, the log to stderr as it grows. Meanwhile this process is a worker: it drives
    whatever is due in the queue, and a run that another worker owns is watched. What the code prints goes to stderr.
    Ctrl-C gives the run back; it is kept,
    and any worker goes on with it. Exits with 0 if the run succeeded, 3 failed, 4 blocked, 5 cancelled or expired.
    """
    import asyncio

    from outlive.app import operate

    wish = operate.Wish(
        agent=agent, input=options.text_of(input, "INPUT"), id=id, queue=queue, priority=priority,
        deadline=options.time_of(deadline, "--deadline"), principal=principal, purpose=purpose,
        labels=options.labels_of(label),
    )  # fmt: skip
    found, settings = operate.application(
        app, store=store, tenant=tenant, lease=lease, concurrency=concurrency,
        unsafe_durability=unsafe_durability or None,
    )  # fmt: skip
    options.set_up_logging(settings)
    raise typer.Exit(asyncio.run(_run(found, settings, wish, quiet=quiet)))


async def _run(app: Outlive[object], settings: Settings, wish: Wish, *, quiet: bool) -> int:
    from outlive.app import operate, serving
    from outlive.cli.stopping import on_signal

    err = console(err=True)

    def seen(line: Line) -> None:
        if not quiet:
            err.print(line_text(line), style=MOODS[line.mood])

    with on_signal() as asked:
        async with serving.serving(app, settings, queues=(wish.queue,), tenants=(settings.tenant,)) as here:
            asked.then(here.stop)
            run = await operate.start(app, settings.tenant, wish)
            say(f"run {run}")
            await here.seek(settings.tenant, run)
            row = await here.watch(settings.tenant, run, seen)
            found = await operate.report(here.store, settings.tenant, run)
            stopped = not row.ended and row.status != "blocked"
            code = _kept(found, settings, asked.code) if stopped else _conclude(found, settings)
            here.stop()
            if others := [one for one in here.worker.running() if one != run]:
                wait = f"{settings.drain.total_seconds():g} s at most"
                say(f"waiting for calls in flight: {', '.join(others)} ({wait}; Ctrl-C twice leaves at once)")
        if here.left():
            serving.leave(code)
    return code


def _conclude(found: Report, settings: Settings) -> int:
    from outlive.cli import advice

    row = found.row
    if row.status == "succeeded":
        put(found.result or "null")
    elif row.status == "blocked":
        for line in advice.blocked(found, settings):
            say(line)
    else:
        say(f"run {row.id} {row.status}: {found.error}".rstrip(": "))
    return codes.of_status(row.status)


def _kept(found: Report, settings: Settings, code: int) -> int:
    from outlive.cli import advice

    again = advice.command("run", found.row.agent, "--id", found.row.id, to=advice.options(settings, app=True))
    say(f"run {found.row.id} is kept; any worker goes on with it, or: {again}")
    return code
