"""`outlive reject`: refuse what waits for an approval, or take one back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import say

if TYPE_CHECKING:
    from outlive.model.approval import ApprovalRow

EXAMPLES = (
    "outlive reject ap-3f9c --who ada --role finance --why 'we do not owe it'",
    "outlive reject ap-3f9c --who ada --role finance --why 'the contract has ended' --revoke",
)


def reject(
    *,
    id: options.ApprovalArgument,
    why: options.Why,
    who: options.Who = None,
    role: options.Role = None,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Take back what was approved and is not used; it is asked for anew.")
    ] = False,
    app: options.App = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Refuse what waits for an approval: the agent is told why.

    One is enough, however many would have to agree.
    """
    import asyncio

    from outlive.app import operate

    if not why.strip():
        raise typer.BadParameter("--why: say why; the agent is told")
    common: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    found, settings = operate.application(app, **common) if app is not None else (None, None)
    settings = settings or operate.settings_of(None, **common)

    async def go() -> ApprovalRow:
        async with operate.reading(settings) as opened:
            desk = operate.approvals(opened, found, settings.tenant)
            person, acting = who or options.user(), role or ""
            if revoke:
                return await desk.revoke(id, who=person, role=acting, why=why)
            return await desk.reject(id, who=person, role=acting, why=why)

    row = asyncio.run(go())
    say(f"approval {row.id} of {row.shown} in run {row.run} is {row.status}")
