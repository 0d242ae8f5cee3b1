"""`DurableSession`: a conversation of the SDK that is kept in the log of the run that has it, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

from agents.items import TResponseInputItem
from agents.memory import SessionSettings
from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

from outlive.engine.attempt import Attempt
from outlive.engine.guest import Guest
from outlive.engine.run import Run
from outlive.harness.units import Json
from outlive.log import kinds
from outlive.openai_agents.lanes import driving

EVENT = "items"
"""The event that tells of a change."""


class Changed(BaseModel):
    """What became of a `Session`: items were added, the last one taken away, or all of them."""

    session_id: str
    added: list[dict[str, JsonValue]] = []
    popped: bool = False
    cleared: bool = False


@dataclass(slots=True)
class _Kept:
    """The items in one attempt: what was added before the loop of turns is added again by the code on replay, what
    was added in turns that are committed only the log knows.
    """

    items: list[Json] = field(default_factory=list)
    whole: bool = False


_kept: WeakKeyDictionary[Attempt, dict[str, _Kept]] = WeakKeyDictionary()


class DurableSession:
    """The SDK's `Session` over the log of a run: `session=DurableSession(run)`, one for each conversation in it.

    Every change is an event of the run, with the items in it; so it is there after a crash, after a commit of a loop of
    turns, and under another version. It is of this run alone: what comes from elsewhere is given as input.
    """

    session_settings: SessionSettings | None = None

    def __init__(self, run: Run[Any], session_id: str = "main") -> None:
        self.session_id = session_id
        self._run = run

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The last items, or all of them."""
        items = await self._known()
        chosen = items if limit is None else items[-limit:] if limit > 0 else []
        return cast("list[TResponseInputItem]", [dict(one) for one in chosen])

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add to the conversation."""
        if items:
            await self._change(Changed(session_id=self.session_id, added=to_jsonable_python(items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last one away."""
        items = await self._known()
        if not items:
            return None
        last = items[-1]
        await self._change(Changed(session_id=self.session_id, popped=True))
        return cast(TResponseInputItem, dict(last))

    async def clear_session(self) -> None:
        """Take all away. They stay in the log."""
        await self._change(Changed(session_id=self.session_id, cleared=True))

    async def _change(self, changed: Changed) -> None:
        items = await self._known()
        turning = driving.get()
        if turning is None:
            await self._run.emit(EVENT, changed)
        else:
            await turning.close()
            await turning.guest.emit(EVENT, changed)
        _apply(items, changed)

    async def _known(self) -> list[Json]:
        """The items up to now."""
        attempt = self._run._attempt
        kept = _kept.setdefault(attempt, {}).setdefault(self.session_id, _Kept())
        if attempt.turning and not kept.whole:
            kept.whole = True
            for one in await self._committed():
                _apply(kept.items, one)
        return kept.items

    async def _committed(self) -> list[Changed]:
        """What the log has of the turns that are committed."""
        found: list[Changed] = []
        latest: list[Changed] = []
        async for entry in Guest(self._run).recorded():
            fact = kinds.read(entry)
            if isinstance(fact, kinds.Turn):
                found += latest if fact.number else []
                latest = []
            elif isinstance(fact, kinds.Emitted) and fact.name == f"emit:{EVENT}" and entry.payload is not None:
                changed = Changed.model_validate_json(entry.payload)
                latest += [changed] if changed.session_id == self.session_id else []
        return found


def _apply(items: list[Json], changed: Changed) -> None:
    if changed.cleared:
        items.clear()
    elif changed.popped:
        del items[-1:]
    else:
        items += changed.added
