"""Lines as the SDK's transcripts have them, and what has to hold of them however they were written."""

from __future__ import annotations

import json
from typing import Any, cast

from claude_agent_sdk import SessionKey, SessionStoreEntry, fold_session_summary

from outlive.claude import OutliveSessionStore

KEY: SessionKey = {"project_key": "shop", "session_id": "8c1e6c1e-0000-4000-8000-000000000001"}


def entry(**fields: Any) -> SessionStoreEntry:
    return cast(SessionStoreEntry, {"type": "user", **fields})


def said(number: int, at: int, *, title: str = "") -> SessionStoreEntry:
    """A line with a uuid of its own."""
    extra = {"customTitle": title} if title else {}
    return entry(uuid=f"{number}-{at}", timestamp=f"2026-01-01T00:00:{number % 60:02}.000Z", n=number, **extra)


async def whole(store: OutliveSessionStore, key: SessionKey = KEY) -> list[dict[str, Any]]:
    """The lines, of which each uuid is there once, and the summary is what the SDK folds from them."""
    lines = await store.load(key) or []
    uuids = [line["uuid"] for line in lines if "uuid" in line]
    assert len(uuids) == len(set(uuids))
    [summary] = [
        one for one in await store.list_session_summaries(key["project_key"]) if one["session_id"] == key["session_id"]
    ]
    assert summary["data"] == fold_session_summary(None, key, lines)["data"]
    return [json.loads(json.dumps(line)) for line in lines]
