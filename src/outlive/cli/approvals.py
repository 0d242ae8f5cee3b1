"""`outlive approvals`: what waits for somebody to approve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from outlive.cli import options
from outlive.cli.screen import iso, local, plain, put, put_json, put_table, say, span, value_of

if TYPE_CHECKING:
    from outlive.app.approvals import Details
    from outlive.model.approval import ApprovalRow, Vote

EXAMPLES = ("outlive approvals", "outlive approvals --mine --role finance", "outlive approvals ap-3f9c --json")


def approvals(
    *,
    id: Annotated[
        str | None,
        typer.Argument(metavar="ID", callback=options.name, help="All that is known of this one.", show_default=False),
    ] = None,
    role: options.Role = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only those about which --who can still decide.")] = False,
    who: options.Who = None,
    json: options.Json = False,
    app: options.App = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Show what waits for an approval: what will be sent, who asks.

    With an ID: also why, what the run has done so far, and who has decided. Arguments are as the log has them, without
    the values of secrets. `outlive approve` and `outlive reject` decide.
    """
    import asyncio

    from outlive.app import operate

    common: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    found, settings = operate.application(app, **common) if app is not None else (None, None)
    settings = settings or operate.settings_of(None, **common)

    async def read() -> tuple[list[ApprovalRow], Details | None, int]:
        async with operate.reading(settings) as opened:
            desk, now = operate.approvals(opened, found, settings.tenant), await opened.now()
            if id is not None:
                return [], await desk.get(id), now
            if mine:
                return await desk.mine(who or options.user(), role=role or ""), None, now
            return await desk.list(role=role or ""), None, now

    rows, details, now = asyncio.run(read())
    if json:
        put_json(_details_json(details) if details is not None else [_json(row) for row in rows], indent=2)
    elif details is not None:
        _tell(details, now)
    else:
        _print(rows, now)


def _print(rows: list[ApprovalRow], now: int) -> None:
    from rich.text import Text

    if not rows:
        say("nothing waits for an approval")
        return
    cells = [
        [
            Text(row.id), Text(plain(row.role)), Text(plain(row.shown)), Text(plain(row.run)),
            Text(plain(row.requester or "-")), Text(span(now - row.asked_at)), Text(_left(row, now)),
        ]
        for row in rows
    ]  # fmt: skip
    put_table(("approval", "role", "what will be sent", "run", "asked by", "age", "expires in"), cells)


def _left(row: ApprovalRow, now: int) -> str:
    return span(row.expires_at - now) if row.expires_at > now else "over"


def _tell(details: Details, now: int) -> None:
    row = details.row
    agreed = sum(vote.act == "approve" for vote in details.votes)
    put(f"approval  {row.id}: {row.status}{': ' + plain(row.why) if row.why else ''}")
    put(f"send      {plain(row.shown)}")
    put(f"with      {plain(row.arguments)}")
    put(f"asked by  {plain(row.requester or 'nobody named')}, by run {plain(row.run)} of {plain(details.agent)}")
    put(f"purpose   {plain(details.purpose or 'none given')}")
    put(f"of        {plain(row.role)}: {agreed} of {row.quorum} agree; asked {local(row.asked_at)}")
    put(f"until     {local(row.expires_at)} ({_left(row, now)})")
    for vote in details.votes:
        put(f"decided   {_vote(vote)}")
    for one in details.done:
        put(f"done      {plain(one.tool)} {plain(one.arguments)}: {one.status}")


def _vote(vote: Vote) -> str:
    place = f" for {plain(vote.place)}" if vote.place else ""
    to = f" to {plain(vote.to)}" if vote.to else ""
    edited = f" with {plain(vote.edited)}" if vote.edited else ""
    return f"{plain(vote.who)}{place}: {vote.act}{to}{edited}{': ' + plain(vote.why) if vote.why else ''}"


def _json(row: ApprovalRow) -> dict[str, object]:
    return {
        "approval": row.id, "run": row.run, "operation": row.operation, "tool": row.tool, "shown": row.shown,
        "arguments": value_of(row.arguments), "role": row.role, "quorum": row.quorum, "requester": row.requester,
        "status": row.status, "why": row.why, "votes": row.votes, "asked_at": iso(row.asked_at),
        "expires_at": iso(row.expires_at), "decided_at": iso(row.decided_at), "used_at": iso(row.used_at),
    }  # fmt: skip


def _details_json(details: Details) -> dict[str, object]:
    return {
        **_json(details.row), "agent": details.agent, "purpose": details.purpose,
        "decided": [
            {
                "who": vote.who, "act": vote.act, "role": vote.role, "in_place_of": vote.place, "to": vote.to,
                "why": vote.why, "arguments": value_of(vote.edited), "at": iso(vote.at),
            }
            for vote in details.votes
        ],
        "done": [
            {"operation": one.id, "tool": one.tool, "arguments": value_of(one.arguments), "status": one.status}
            for one in details.done
        ],
    }  # fmt: skip
