"""What people decide about operations that need an approval: seen, approved, rejected, delegated, by signed links too.

Who somebody is, the caller vouches for; which roles they have, the application's directory says, or the caller where
there is none. The store judges every vote under the lock of the approval's row.
"""

from __future__ import annotations

import binascii
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias, cast

from outlive.app.given import check_said
from outlive.app.registry import Registry
from outlive.engine.approval import Roles, check_edit
from outlive.engine.attempt import DIGEST_CHARS
from outlive.engine.failures import writable
from outlive.log.canonical import digest
from outlive.model.approval import (
    Act,
    ApprovalFilter,
    ApprovalRow,
    ApprovalStatus,
    Reading,
    Vote,
    place_of,
    same_person,
)
from outlive.model.clock import Clock
from outlive.model.errors import (
    ApprovalClosed,
    BadArguments,
    LinkExpired,
    LinkForged,
    MayNotDecide,
    Refused,
    UndecodableEntry,
    UnknownApproval,
)
from outlive.model.ids import ApprovalId, Tenant
from outlive.model.operation import OperationRow
from outlive.store.port import Store

_ALL = 10_000
_LINK = b"link to an approval"

Rows: TypeAlias = "list[ApprovalRow]"


@dataclass(frozen=True, slots=True)
class Details:
    """An approval with what somebody who decides has to know: who asks and why, what the run has done so far."""

    row: ApprovalRow
    votes: tuple[Vote, ...]
    agent: str
    purpose: str
    done: tuple[OperationRow, ...]


class Approvals:
    """The approvals of one tenant."""

    def __init__(
        self, store: Callable[[], Store], clock: Clock, registry: Registry, roles: Roles | None,
        tenant: str = "default",
    ) -> None:  # fmt: skip
        self._store, self._clock, self._registry, self._roles = store, clock, registry, roles
        self._tenant = Tenant(tenant)

    def of(self, tenant: str) -> Approvals:
        """Those of another tenant."""
        return Approvals(self._store, self._clock, self._registry, self._roles, tenant)

    # ---- seeing

    async def list(
        self, *, role: str = "", run: str = "", statuses: tuple[ApprovalStatus, ...] = ("asked",), limit: int = 100
    ) -> Rows:
        """Those that match, oldest first: by default the open ones. One may be over, and nobody have noticed yet."""
        return await self._store().approvals(self._tenant, ApprovalFilter(statuses, role, run, limit))

    async def get(self, id: str) -> Details:
        """One by its id, or the beginning of it. Raises UnknownApproval."""
        found = await self._find(id)
        run = await self._store().run(self._tenant, found.row.run)
        done = await self._store().operations(self._tenant, found.row.run)
        agent, purpose = (run.agent, run.purpose) if run is not None else ("", "")
        return Details(found.row, found.votes, agent, purpose, tuple(done))

    async def mine(self, who: str, *, role: str = "", limit: int = 100) -> Rows:
        """The open ones about which somebody can still decide, oldest first."""
        mine: Rows = []
        held = await self._roles(who) if self._roles is not None else None
        for row in await self.list(role=role, limit=_ALL):
            reading = await self._find(row.id)
            named = bool(place_of(reading.votes, who))
            may = named or held is None or row.role in held
            if may and len(mine) < limit and not any(same_person(who, one) for one in _involved(reading)):
                mine.append(row)
        return mine

    # ---- deciding

    async def approve(
        self, id: str, *, who: str, role: str = "", arguments: Mapping[str, object] | None = None, why: str = ""
    ) -> ApprovalRow:
        """Agree to it, with these arguments in the place of the proposed ones, if some are given (by parameter name).

        What is agreed to is what is sent, if enough people agree to the same. Raises BadArguments for arguments that
        the tool does not take, or that would need another approval; and UnknownApproval, ApprovalClosed, MayNotDecide.
        """
        found = await self._find(id)
        edited, digested = (None, found.row.proposed)
        if arguments is not None:
            edited, digested = await self._edited(found.row, arguments)
        return await self._vote(found, "approve", who, role, why, digested=digested, edited=edited)

    async def reject(self, id: str, *, who: str, role: str = "", why: str) -> ApprovalRow:
        """Refuse it: the agent is told with `why`. One is enough. Raises as `approve`."""
        return await self._vote(await self._find(id), "reject", who, role, why)

    async def delegate(self, id: str, *, who: str, role: str = "", to: str, why: str = "") -> ApprovalRow:
        """Name somebody else who decides in one's place; one's own say is given away. Raises as `approve`."""
        return await self._vote(await self._find(id), "delegate", who, role, why, to=to)

    async def revoke(self, id: str, *, who: str, role: str = "", why: str) -> ApprovalRow:
        """Take back what was approved and is not used yet; it is asked for anew. Raises as `approve`."""
        return await self._vote(await self._find(id), "revoke", who, role, why)

    # ---- links

    async def link(self, id: str, *, who: str, role: str = "", valid: timedelta = timedelta(days=1)) -> str:
        """A token for a page or a mail: whoever has it can decide once, as `who`, about exactly what is proposed.

        Raises UnknownApproval, ApprovalClosed, and Refused for a time that is none.
        """
        if valid <= timedelta(0):
            raise Refused(what=f"a link that is valid for {valid}", why="say how long it can be used")
        row = (await self._find(id)).row
        if not row.open:
            raise ApprovalClosed(approval=row.id, status=row.status)
        until = await self._store().now() + round(valid.total_seconds() * 1000)
        claims = [1, self._tenant, row.id, who, role or row.role, row.proposed, row.policy, until, self._clock.token()]
        body = json.dumps(claims, ensure_ascii=False, separators=(",", ":")).encode()
        return f"{urlsafe_b64encode(body).decode().rstrip('=')}.{await self._signed(body)}"

    async def redeem(self, token: str, decision: Literal["approve", "reject"], *, why: str = "") -> ApprovalRow:
        """Decide by a link. Raises LinkForged, LinkExpired, LinkUsed, and as `approve`."""
        if decision not in ("approve", "reject"):
            raise Refused(what=f"redeem(…, {decision!r})", why="say approve or reject")
        id, who, role, proposed, policy, until, nonce = await self._claims(token)
        if await self._store().now() >= until:
            raise LinkExpired(approval=id)
        found = await self._find(id)
        if (found.row.proposed, found.row.policy) != (proposed, policy):
            raise LinkForged(why="it is for another proposal")
        digested = proposed if decision == "approve" else ""
        return await self._vote(found, decision, who, role, why, digested=digested, nonce=nonce)

    async def _claims(self, token: str) -> tuple[str, str, str, str, str, int, str]:
        text, _, signature = token.partition(".")
        try:
            body = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (binascii.Error, ValueError):
            raise LinkForged(why="it cannot be read") from None
        if not hmac.compare_digest((await self._signed(body)).encode(), signature.encode()):
            raise LinkForged(why="its signature is not ours")
        _, tenant, *claims = cast("list[object]", json.loads(body))
        if tenant != self._tenant:
            raise LinkForged(why="it is of another tenant")
        return cast("tuple[str, str, str, str, str, int, str]", tuple(claims))

    async def _signed(self, body: bytes) -> str:
        return digest(await self._store().key(self._tenant), _LINK, body)

    # ---- both

    async def _find(self, id: str) -> Reading:
        store = self._store()
        if (found := await store.approval(self._tenant, ApprovalId(id))) is not None:
            return found
        rows = await store.approvals(self._tenant, ApprovalFilter(statuses=(), limit=_ALL))
        matches = tuple(row.id for row in rows if row.id.startswith(id)) if id else ()
        whole = await store.approval(self._tenant, matches[0]) if len(matches) == 1 else None
        if whole is None:
            raise UnknownApproval(approval=id, matches=matches)
        return whole

    async def _vote(
        self, found: Reading, act: Act, who: str, role: str, why: str, *, to: str = "", digested: str = "",
        edited: str | None = None, nonce: str = "",
    ) -> ApprovalRow:  # fmt: skip
        check_said(act, who, why)
        row = found.row
        place = place_of(found.votes, who) if act != "revoke" else ""
        if self._roles is not None and not place:
            role = role or row.role
            if role not in await self._roles(who):
                raise MayNotDecide(approval=row.id, who=who, why=f"they do not have the role {role}")
        vote = Vote(
            writable(who.strip()), act, "" if place else role, place, writable(to.strip()), writable(why), digested,
            edited, nonce,
        )  # fmt: skip
        return await self._store().vote(self._tenant, row.id, vote, now=self._clock.now())

    async def _edited(self, row: ApprovalRow, given: Mapping[str, object]) -> tuple[str | None, str]:
        """The arguments as JSON text and their digest; no text where they are the proposed ones after all."""
        tool = self._registry.tool(row.tool)
        if tool is None:
            raise BadArguments(function=row.tool, why="this application has no such tool, so they cannot be checked")
        proposed: dict[str, object] = json.loads(row.arguments)
        if proposed.keys() == {"scrubbed"} and "scrubbed" not in {one.name for one in tool.signature.parameters}:
            raise BadArguments(function=row.tool, why="they hold a secret, so that they cannot be edited")
        try:
            text = json.dumps({**proposed, **given}, ensure_ascii=False)
            arguments = tool.signature.decode(text, where="the edited arguments")
        except (UndecodableEntry, TypeError, ValueError) as error:
            raise BadArguments(function=row.tool, why=f"the edited arguments do not fit: {error}") from None
        key = await self._store().key(self._tenant)
        digested = digest(key, tool.signature.digest_form(arguments))[:DIGEST_CHARS]
        if digested == row.proposed:
            return None, digested
        check_edit(tool, arguments, row)
        return tool.signature.encode(arguments), digested


def _involved(reading: Reading) -> list[str]:
    """Who has no say any more, or never had."""
    return [one for one in (reading.row.requester, *(vote.who for vote in reading.votes)) if one]


def approvals_in(store: Store, clock: Clock, tenant: str, registry: Registry | None, roles: Roles | None) -> Approvals:
    """The approvals of an open store; without an application nothing can be edited, and roles are as they are said."""
    return Approvals(lambda: store, clock, registry or Registry(), roles, tenant)
