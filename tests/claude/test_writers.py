"""Several who write a transcript at once, retries, processes that are killed, and what is kept for how long."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from claude_agent_sdk import (
    SessionKey,
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
)

from outlive import Outlive
from outlive.claude import OutliveSessionStore
from outlive.errors import NotSerialisable, Refused
from outlive.model.ids import Tenant
from outlive.store.transcripts import Part, Transcripts
from outlive.testing.clock import ManualClock
from tests.claude.lines import KEY, entry, said, whole


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    postgres = request.param == "postgres"
    return str(request.getfixturevalue("postgres")) if postgres else f"sqlite:///{tmp_path}/claude.db"


@pytest.fixture
async def store(url: str) -> AsyncIterator[OutliveSessionStore]:
    async with OutliveSessionStore(url) as one:
        yield one


async def test_two_writers_lose_no_line_and_nothing_of_the_summary(url: str, store: OutliveSessionStore) -> None:
    async with OutliveSessionStore(url) as other:
        for round in range(10):
            key: SessionKey = {"project_key": "shop", "session_id": f"s{round}"}
            await asyncio.gather(
                *[store.append(key, [entry(uuid=f"a{at}", gitBranch=f"b{at}")]) for at in range(5)],
                *[other.append(key, [entry(uuid=f"z{at}", customTitle=f"t{at}")]) for at in range(5)],
                *[other.append(key, [entry(type="tag", tag=f"g{at}")]) for at in range(5)],
            )
            lines = await whole(store, key)
            assert len(lines) == 15
            assert sorted(line["uuid"] for line in lines if "uuid" in line) == sorted(
                f"{who}{at}" for who in "az" for at in range(5)
            )


async def test_what_is_appended_again_changes_nothing(store: OutliveSessionStore) -> None:
    first = [said(1, 0, title="first"), said(1, 1)]
    await store.append(KEY, first)
    await store.append(KEY, [said(2, 0, title="second")])
    before = await whole(store)
    listed = await store.list_sessions("shop")
    await store.append(KEY, first)
    assert await whole(store) == before
    assert await store.list_sessions("shop") == listed
    await store.append(KEY, [*first, said(3, 0), said(3, 0)])
    assert [line["uuid"] for line in await whole(store)] == ["1-0", "1-1", "2-0", "3-0"]
    [summary] = await store.list_session_summaries("shop")
    assert summary["data"]["custom_title"] == "second"
    # A line without a uuid is never the same as another.
    await store.append(KEY, [entry(type="mode", mode="plan")] * 2)
    assert len(await whole(store)) == 6
    # The same uuid in another transcript is another line.
    await store.append({**KEY, "subpath": "subagents/agent-1"}, first)
    assert len(await store.load({**KEY, "subpath": "subagents/agent-1"}) or []) == 2


async def test_a_writer_that_is_killed_leaves_whole_batches_and_their_summary(
    url: str, store: OutliveSessionStore
) -> None:
    await store.append(KEY, [entry(uuid="first", cwd="/srv")])
    for _ in range(3):
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.claude.writer", url, stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        said_last = -1
        while said_last < 20:
            said_last = int(await writer.stdout.readline())
        writer.kill()
        said_last = max([said_last, *map(int, (await writer.stdout.read()).split())])
        await writer.wait()
        lines = [line["uuid"] for line in await whole(store)][1:]
        assert len(lines) % 3 == 0
        assert lines == [f"{number}-{at}" for number in range(len(lines) // 3) for at in range(3)]
        assert len(lines) // 3 > said_last


async def test_lines_come_back_as_they_were(store: OutliveSessionStore) -> None:
    odd = [
        entry(uuid="nul \0 half \ud800", text="nul \0, half a pair \ud800, 日本語, 'quotes'", none=None),
        entry(uuid="deep", deep={"a": [1.5, {"b": None}]}),
        entry(uuid="big", text="x" * 3_000_000), entry(uuid="", n=2**70), entry(n=-0.0, empty=""),
    ]  # fmt: skip
    await store.append(KEY, odd)
    await store.append(KEY, odd[:2])
    assert json.dumps(await store.load(KEY)) == json.dumps(odd)
    with pytest.raises(NotSerialisable, match="a line of a transcript"):
        await store.append(KEY, [entry(n=math.nan)])
    with pytest.raises(NotSerialisable, match="NUL"):
        await store.append({"project_key": "a\0b", "session_id": "s"}, [entry(n=1)])
    with pytest.raises(Refused, match="empty subpath"):
        await store.load({**KEY, "subpath": ""})
    assert len(await store.load(KEY) or []) == 5


async def test_the_helpers_of_the_sdk_find_fork_and_delete(store: OutliveSessionStore, tmp_path: Path) -> None:
    project = project_key_for_directory(str(tmp_path))
    first, second = (f"8c1e6c1e-0000-4000-8000-00000000000{number}" for number in (1, 2))
    for name in (first, second):
        talk = [
            {
                "type": kind, "uuid": f"{name[:-1]}{at}", "parentUuid": f"{name[:-1]}{at - 1}" if at else None,
                "sessionId": name, "timestamp": f"2026-01-01T00:00:0{at}.000Z", "cwd": str(tmp_path),
                "isSidechain": False, "message": {"role": kind, "content": f"{name[-1]} says {at}"},
            }
            for at, kind in enumerate(["user", "assistant", "user", "assistant"])
        ]  # fmt: skip
        await store.append({"project_key": project, "session_id": name}, [entry(**line) for line in talk])
    listed = await list_sessions_from_store(store, directory=str(tmp_path))
    assert [(one.session_id, one.first_prompt) for one in listed] == [(second, "2 says 0"), (first, "1 says 0")]
    messages = await get_session_messages_from_store(store, first, directory=str(tmp_path))
    assert [one.message["content"] for one in messages] == [f"1 says {at}" for at in range(4)]
    forked = await fork_session_via_store(store, first, directory=str(tmp_path), title="another way")
    messages = await get_session_messages_from_store(store, forked.session_id, directory=str(tmp_path))
    assert [one.message["content"] for one in messages] == [f"1 says {at}" for at in range(4)]
    await delete_session_via_store(store, first, directory=str(tmp_path))
    left = await list_sessions_from_store(store, directory=str(tmp_path))
    assert {one.session_id for one in left} == {second, forked.session_id}


async def test_a_delete_beside_writers_leaves_no_lines_behind(url: str, store: OutliveSessionStore) -> None:
    async with OutliveSessionStore(url) as other:
        for round in range(15):
            key: SessionKey = {"project_key": "shop", "session_id": f"s{round}"}
            sub: SessionKey = {**key, "subpath": "subagents/agent-1"}
            await store.append(key, [said(0, at) for at in range(50)])
            await asyncio.gather(
                *[store.append(one, [said(at, 0)]) for at in range(1, 4) for one in (key, sub)], other.delete(key)
            )
            # What is there now was written after the delete, all of it.
            assert len(await store.load(key) or []) <= 3 >= len(await store.load(sub) or [])
            if await store.load(key):
                await whole(store, key)
            await other.delete(key)
            assert await store.load(key) is None is await store.load(sub)
            await store.append(key, [said(9, 9)])
            assert await whole(store, key) == [said(9, 9)]


async def test_what_was_not_written_for_long_goes_with_the_next_write(url: str) -> None:
    clock = ManualClock()
    async with Outlive(url, clock=clock) as app:
        old, kept = Part("p", "old", ""), Part("p", "kept", "")
        store, tenant = app.opened, Tenant("default")
        assert isinstance(store, Transcripts)
        for part in (old, Part("p", "old", "sub"), kept, Part("p", "kept", "sub")):
            assert await store.extend_transcript(
                tenant, part, [], after=None, token=f"{part.name} {part.part}", summary=None
            )
        clock.advance(timedelta(hours=1))
        head = await store.transcript_head(tenant, Part("p", "kept", "sub"), [])
        assert await store.extend_transcript(tenant, Part("p", "kept", "sub"), [], after=head, token="t", summary=None)
        assert await store.drop_old_transcripts(Tenant("other"), kept_ms=60_000, limit=9) == 0
        assert await store.drop_old_transcripts(tenant, kept_ms=60_000, limit=9) == 1
        assert await store.drop_old_transcripts(tenant, kept_ms=60_000, limit=9) == 0
        assert [row.name for row in await store.transcripts(tenant, "p")] == ["kept"]
        assert await store.transcript_parts(tenant, "p", "kept") == ["sub"]
        assert await store.transcript_parts(tenant, "p", "old") == []
        # One that was written between the look and the lock would not go: the write before is named.
        assert not await store.extend_transcript(tenant, kept, [], after=head, token="u", summary=None)
    with pytest.raises(Refused, match="keep="):
        OutliveSessionStore(url, keep=timedelta(0))
    async with OutliveSessionStore(url, keep=timedelta(days=1)) as kept_store:
        await kept_store.append(KEY, [said(1, 1)])
        assert await kept_store.load(KEY) == [said(1, 1)]


async def test_it_is_used_from_any_event_loop(store: OutliveSessionStore) -> None:
    await store.append(KEY, [said(1, 0)])
    await asyncio.to_thread(lambda: asyncio.run(store.append(KEY, [said(1, 1)])))
    assert [line["uuid"] for line in await whole(store)] == ["1-0", "1-1"]
