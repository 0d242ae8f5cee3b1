"""`outlive mcp`: serve agents to MCP clients."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from outlive.cli import codes, options
from outlive.cli.screen import results, say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from outlive.app.outlive import Outlive
    from outlive.app.serving import Serving
    from outlive.app.settings import Settings
    from outlive.mcp import Access

EXAMPLES = (
    "outlive mcp --app shop.app:app",
    "outlive mcp --app shop.app:app --work   # one process for all, for a desk",
    "outlive mcp --transport http --port 8931 --client ada=mcp/ada --client bo=mcp/bo",
    "outlive mcp --principal assistant --who lena --allow-approvals finance",
)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def mcp(
    *,
    app: options.App = None,
    transport: Annotated[
        Literal["stdio", "http"], typer.Option(help="How clients reach it: it is their child, or they connect.")
    ] = "stdio",
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where http listens; others than this machine need --client.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port of http; 0: any.")] = 8931,
    client: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SECRET", show_default=False,
            help="A client of http, and the secret that it shows as its bearer token; may be repeated.",
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", callback=options.name, show_default=False,
            help="An agent to serve; may be repeated [all].",
        ),
    ] = None,
    who: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=options.name, show_default=False,
            help="Who answers and cancels where clients have no names [the user of this machine].",
        ),
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", show_default=False,
            help="On whose authority runs act [who starts them]; they do not decide about approvals of these runs.",
        ),
    ] = None,
    allow_approvals: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE", callback=options.name, show_default=False,
            help="A role in which clients may approve and reject; may be repeated [none].",
        ),
    ] = None,
    answer_role: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE", callback=options.name, show_default=False,
            help="Only questions to this role can be answered; may be repeated [to any].",
        ),
    ] = None,
    wait: Annotated[
        str, typer.Option(metavar="TIME", help="How long a call waits for its run, if its client knows no tasks.")
    ] = "20s",
    work: Annotated[bool, typer.Option("--work", help="Drive runs here too, as `outlive worker` does.")] = False,
    queue: options.Queue = "default",
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Serve agents as tools to MCP clients.

    A long run is a task of the tasks extension. It needs the extra mcp. It may be killed at any time: what was started
    goes on, and any other one that serves the tenant answers for it.
    """
    import asyncio

    from outlive.app import operate
    from outlive.mcp import Access

    clients = options.labels_of(client, "--client")
    if transport == "stdio" and clients:
        raise typer.BadParameter("--client is for --transport http; over stdio there is one client, named by --who")
    if transport == "http" and not clients and host not in _LOOPBACK:
        raise typer.BadParameter(f"--host {host} lets other machines in: name each with --client NAME=SECRET")
    found, settings = operate.application(app, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    operate.check_serves(found, settings)
    options.set_up_logging(settings)
    access = Access(
        who=who or options.user(), tenant=settings.tenant, principal=principal, queue=queue,
        approvals=frozenset(allow_approvals or ()), answers=frozenset(answer_role) if answer_role else None,
        wait=options.span_of(wait, "--wait"),
    )  # fmt: skip
    place = (host, port) if transport == "http" else None
    raise typer.Exit(asyncio.run(_serve(found, settings, access, tuple(agent or ()), place, clients, work=work)))


async def _serve(
    app: Outlive[object], settings: Settings, access: Access, agents: tuple[str, ...],
    place: tuple[str, int] | None, clients: dict[str, str], *, work: bool,
) -> int:  # fmt: skip
    import asyncio

    from outlive.app import operate, serving
    from outlive.app.compose import secrets_of
    from outlive.cli.stopping import on_signal
    from outlive.mcp import make_http, make_server
    from outlive.mcp.listen import over_http, over_stdio, stdio

    server = make_server(app, access, agents=agents)
    stopped = asyncio.Event()
    with on_signal() as asked:
        asked.then(stopped.set)
        if not await operate.reached(app, settings, stopped.is_set):
            return codes.OK
        if place is None:
            async with stdio(results()) as streams:
                async with _opened(app, settings, access, work=work):
                    await over_stdio(server, streams, stopped)
                serving.leave(codes.OK)
        inner = make_http(server, host=place[0], clients=clients, secrets=app.secrets or secrets_of(settings))
        async with _opened(app, settings, access, work=work) as here:
            await over_http(inner, *place, stopped, lambda url: say(f"serving MCP at {url}"))
        if here is not None and here.left():
            serving.leave(codes.OK)
    return codes.OK


@asynccontextmanager
async def _opened(
    app: Outlive[object], settings: Settings, access: Access, *, work: bool
) -> AsyncIterator[Serving | None]:
    """The store, open, and with `work` a worker that has drained when the block is over."""
    from outlive.app import operate, serving

    if not work:
        async with operate.opened(app, settings):
            yield None
        return
    async with serving.serving(app, settings, queues=(access.queue,), tenants=(access.tenant,)) as here:
        here.warn_of_ends()
        yield here
