"""`outlive start`: put a run into the queue and print its id."""

from __future__ import annotations

from outlive.cli import options
from outlive.cli.screen import put

EXAMPLES = (
    'outlive start dunning \'{"month": "2026-03"}\' --id dunning-2026-03 --app shop.app:app',
    "outlive start dunning @march.json --priority 5 --deadline 3d --label team=billing",
)


def start(
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
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Put a run into the queue and print its id.

    A worker drives it. With --id starting is idempotent: the same id, agent and input is the same run; with another
    agent or input it is an error, and nothing is started.
    """
    import asyncio

    from outlive.app import operate

    wish = operate.Wish(
        agent=agent, input=options.text_of(input, "INPUT"), id=id, queue=queue, priority=priority,
        deadline=options.time_of(deadline, "--deadline"), principal=principal, purpose=purpose,
        labels=options.labels_of(label),
    )  # fmt: skip
    found, settings = operate.application(app, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)

    async def go() -> str:
        async with operate.opened(found, settings):
            return await operate.start(found, settings.tenant, wish)

    put(asyncio.run(go()))
