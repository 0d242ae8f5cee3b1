"""`outlive worker`: drive runs until told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import codes, options
from outlive.cli.screen import put, say

if TYPE_CHECKING:
    from outlive.app.outlive import Outlive
    from outlive.app.serving import Serving
    from outlive.app.settings import Settings

EXAMPLES = (
    "outlive worker --app shop.app:app",
    "outlive worker shop.app:app --concurrency 20 --lease 10s",
    "outlive worker --queue default --queue reports   # with OUTLIVE_APP set",
)


def worker(
    *,
    application: Annotated[
        str | None, typer.Argument(metavar="MODULE:ATTR", help="Short for --app.", show_default=False)
    ] = None,
    app: options.App = None,
    concurrency: options.Concurrency = None,
    lease: options.Lease = None,
    drain: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", show_default=False,
            help="How long SIGTERM waits for calls in flight [OUTLIVE_DRAIN; 30s].",
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", callback=options.name, help="A queue to serve; may be repeated [default].",
            show_default=False,
        ),
    ] = None,
    until_replaced: Annotated[
        bool,
        typer.Option(
            "--until-replaced",
            help="Leave to workers of another build that began later what they can drive; exit when no run is left.",
        ),
    ] = False,
    store: options.Store = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=options.name, help="Serve this tenant alone [OUTLIVE_TENANT; all].",
            show_default=False,
        ),
    ] = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Drive runs until told to stop.

    At SIGTERM or Ctrl-C it drains and exits with 0: it claims no more, lets calls in flight reach their record, and
    gives the runs back. A second signal exits at once. With --until-replaced it does so by itself, when newer workers
    can drive all that is left. A worker may be killed at any time: others take its runs over
    when their leases have lapsed.
    """
    import asyncio

    from outlive.app import operate

    if app is not None and application is not None and app != application:
        raise typer.BadParameter(f"the application is named twice: {application} and --app {app}")
    found, settings = operate.application(
        app or application, store=store, tenant=tenant, lease=lease, concurrency=concurrency, drain=drain,
        unsafe_durability=unsafe_durability or None,
    )  # fmt: skip
    operate.check_serves(found, settings)
    options.set_up_logging(settings)
    raise typer.Exit(asyncio.run(_serve(found, settings, tuple(queue or ("default",)), until_replaced)))


async def _serve(app: Outlive[object], settings: Settings, queues: tuple[str, ...], until_replaced: bool) -> int:
    import os

    from outlive.app import operate, serving
    from outlive.cli.stopping import on_signal

    tenants = None if settings.sources.get("tenant") == "default" else (settings.tenant,)
    with on_signal() as asked:
        if not await operate.reached(app, settings, lambda: bool(asked.number)):
            put("worker was stopped before it could open its store")
            return codes.OK
        async with serving.serving(
            app, settings, queues=queues, tenants=tenants, until_replaced=until_replaced
        ) as here:  # fmt: skip
            asked.then(lambda: _drain(here, settings))
            here.warn_of_ends()
            agents = ", ".join(sorted(app.registry.agents))
            put(f"worker {here.owner} pid {os.getpid()} serves {agents} from {here.store.name}")
            await here.over
        if here.left():
            say("error: calls are still in flight after the drain; they end with this process, and their leases lapse")
            serving.leave(codes.OK)
    others = here.worker.replaced.others if here.worker.replaced is not None and not asked.number else ()
    by = ", ".join(sorted({f"{one.agent} version {one.version}, build {one.build}" for one in others}))
    put(f"worker {here.owner} has drained" + (f": no run needs it any more; others serve {by}" if by else ""))
    return codes.OK


def _drain(here: Serving, settings: Settings) -> None:
    say(f"draining: calls in flight have {settings.drain.total_seconds():g} s; a second signal exits at once")
    here.stop()
