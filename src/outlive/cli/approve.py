"""`outlive approve`: agree to what waits for an approval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.model.approval import ApprovalRow

EXAMPLES = (
    "outlive approve ap-3f9c --who ada --role finance",
    "outlive approve ap-3f9c --who ada --role finance --edit '{\"cents\": 4000}' --app shop:app",
    "outlive approve ap-3f9c --who ada --role finance --delegate ben",
)


def approve(
    *,
    id: options.ApprovalArgument,
    who: options.Who = None,
    role: options.Role = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept.", show_default=False)] = "",
    edit: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", show_default=False,
            help="Arguments to be sent instead, as a JSON object by parameter, @file.json, or - for stdin.",
        ),
    ] = None,
    delegate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", callback=options.name, show_default=False,
            help="Decide nothing, but name somebody who does in your place.",
        ),
    ] = None,
    app: options.App = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:  # fmt: skip
    """Agree to what waits for an approval. It is sent when enough do.

    What is agreed to is this operation with these arguments, once, until the approval expires. --edit needs the
    application, because the arguments must be of the tool's types; all who agree must agree to the same.
    """
    import asyncio
    import json

    from outlive.app import operate

    if edit is not None and delegate is not None:
        raise typer.BadParameter("--edit and --delegate: say one of them")
    text = options.text_of(edit, "--edit")
    try:
        arguments: object = None if text is None else json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--edit is not JSON: {error}") from None
    if arguments is not None and not isinstance(arguments, dict):
        raise typer.BadParameter("--edit: say an object, by parameter name")
    common: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    found, settings = operate.application(app, **common) if app is not None or edit is not None else (None, None)
    settings = settings or operate.settings_of(None, **common)
    person = who or options.user()

    async def go() -> ApprovalRow:
        async with operate.reading(settings) as opened:
            desk = operate.approvals(opened, found, settings.tenant)
            if delegate is not None:
                return await desk.delegate(id, who=person, role=role or "", to=delegate, why=why)
            return await desk.approve(id, who=person, role=role or "", arguments=arguments, why=why)

    row = asyncio.run(go())
    if delegate is not None:
        say(f"{delegate} can decide about approval {row.id} in the place of {person}")
    elif row.open:
        say(f"approval {row.id}: {row.votes} have decided, {row.quorum} must agree to the same")
    else:
        say(f"approval {row.id} of {row.shown} in run {row.run} is {row.status}")
