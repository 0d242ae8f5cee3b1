"""`outlive send`: send a message to a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.model.run import RunRow

EXAMPLES = (
    "outlive send lamp-1 offers '{\"cents\": 4200}' --key mail-17",
    "outlive send lamp-1 offers @offer.json --key mail-17",
)


def send(
    *,
    run: options.RunArgument,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", callback=options.name, help="What it is about.", show_default=False)
    ],
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="JSON, @file.json, or - for stdin.", show_default=False)
    ],
    key: Annotated[
        str,
        typer.Option(
            metavar="TEXT", callback=options.name, show_default=False,
            help="Which message it is: a second one with this key on this topic changes nothing.",
        ),
    ],
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Send a message to a run, on a topic.

    It is received there by a wait that has begun or by a later one, whether or not a worker lives now.

    It is stored when this returns; no worker needs to live. What it has to be, the agent says where it receives it: one
    that does not fit is used up.
    """
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    text = options.text_of(message, "MESSAGE")
    assert text is not None

    async def go() -> tuple[bool, RunRow]:
        async with operate.reading(settings) as opened:
            return await operate.send(opened, settings.tenant, run, topic, text, key)

    new, row = asyncio.run(go())
    said = f"sent to run {run} on {topic}" if new else f"run {run} has a message with the key {key} on {topic} already"
    say(
        f"{said}; it is not received any more, the run has {row.status}" if row.ended else f"{said}; it is {row.status}"
    )
