"""`outlive answer`: answer a question that a run has asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.app.mail import Question

EXAMPLES = (
    "outlive questions",
    "outlive answer refund-7 'Refund 4200 cents?' true --who ada",
    "outlive answer refund-7 answer:ask '{\"cents\": 4200}'",
)


def answer(
    *,
    run: options.RunArgument,
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION", callback=options.name, show_default=False,
            help="The question's id, or its beginning, or its text, as `outlive questions` shows it.",
        ),
    ],
    given: Annotated[
        str, typer.Argument(metavar="ANSWER", help="JSON, @file.json, or - for stdin.", show_default=False)
    ],
    who: options.Who = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Answer a question of a run; the first answer counts.

    The run goes on by itself then. An answer of a plain type (text, number, yes or no) is checked before it is stored;
    what the agent finds not to fit is used up.
    """
    import asyncio

    from outlive.app import operate

    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    text, name = options.text_of(given, "ANSWER"), who or options.user()
    assert text is not None

    async def go() -> Question:
        async with operate.reading(settings) as opened:
            return await operate.answer(opened, settings.tenant, run, question, text, name)

    asked = asyncio.run(go())
    say(f"answered {asked.id} of run {run} as {name}: {asked.text}")
