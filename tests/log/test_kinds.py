"""Entries: every kind round-trips, what cannot be read is named, and upcasters reach the present version."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.errors import ChainBroken, NotSerialisable, UndecodableEntry
from outlive.log import kinds
from outlive.log.difference import Difference
from outlive.log.entry import BLOB_BYTES, Draft, Entry, seal, verify
from outlive.log.fold import Fold, fold
from outlive.model.run import Head

SECRET = b"k" * 32


def entry(draft: Draft, seq: int = 3) -> Entry:
    return seal(SECRET, Head(seq, b"before"), 1, [draft]).entries[0]


def a_value(hint: object) -> st.SearchStrategy[object]:
    if hint is str:
        return st.text(max_size=20)
    if hint is bool:
        return st.booleans()
    if hint == (int | None):
        return st.none() | st.integers(0, 2**53)
    if hint is int:
        return st.integers(0, 2**53)
    if hint == kinds.ErrorRecord or kinds.ErrorRecord in get_args(hint):
        error = st.builds(kinds.ErrorRecord, type=st.text(max_size=9), message=st.text(max_size=9))
        return error if hint == kinds.ErrorRecord else st.none() | error
    if hint == (Difference | None):
        texts = {name: st.text(max_size=9) for name in ("scope", "kind", "name", "digest", "shown")}
        return st.none() | st.builds(Difference, entry=st.integers(0, 99), **texts)
    if hint == (str | None):
        return st.none() | st.text(max_size=9)
    if hint == dict[str, str]:
        return st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
    if hint == list[kinds.LostOperation]:
        said = st.builds(kinds.ErrorRecord, type=st.text(max_size=9), message=st.text(max_size=9))
        return st.lists(st.builds(kinds.LostOperation, error=st.none() | said), max_size=2)
    if hint == list[str]:
        return st.lists(st.text(max_size=5), max_size=3)
    return st.sampled_from(get_args(hint))


@pytest.mark.parametrize("kind", kinds.KINDS.values(), ids=list(kinds.KINDS))
@given(data=st.data())
def test_every_kind_reads_back_as_it_was_written(kind: type[kinds.Fact], data: st.DataObject) -> None:
    hints = get_type_hints(kind)
    given = {one.name: data.draw(a_value(hints[one.name])) for one in fields(kind)}
    fact = kind(**given)
    assert kinds.read(entry(kinds.draft(fact, at=7))) == fact


def test_names_of_kinds_are_compatibility_data() -> None:
    assert sorted(kinds.KINDS) == [
        "absent", "adopted", "arrived", "attempt", "blocked", "cancelling", "claimed", "completion", "decided", "done",
        "emitted", "ended", "entries lost", "evidence", "forked", "held", "intent", "joined", "later", "lookup",
        "met again", "not acted",
        "note", "opened", "outcome", "paused", "proposed", "released", "reminded", "resolution", "resumed", "retried",
        "rolling back", "scope cancelled", "shared", "started", "state adopted", "step",
        "suspended",
        "too late", "turn", "unknown", "value", "wait", "woken",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        (Draft("step", 1, 0, "", "", "not json"), "entry 3 (step)"),
        (Draft("step", 1, 0, "", "", '{"nam":"x"}'), "entry 3 (step)"),
        (Draft("step", 2, 0, "", "", "{}"), "version 2 is newer"),
        (Draft("dream", 1, 0, "", "", "{}"), "its kind is not known"),
    ],
)
def test_what_cannot_be_read_is_named_never_none(draft: Draft, says: str) -> None:
    with pytest.raises(UndecodableEntry) as caught:
        kinds.read(entry(draft))
    assert says in str(caught.value)


def test_an_older_body_is_turned_into_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds.Released, "VERSION", 3)
    monkeypatch.setitem(kinds.UPCASTERS, ("released", 1), lambda body: {"reason": body["because"]})
    monkeypatch.setitem(kinds.UPCASTERS, ("released", 2), lambda body: {"why": body["reason"]})
    old = Draft("released", 1, 0, "", "", '{"because":"a deploy"}')
    assert kinds.read(entry(old)) == kinds.Released(why="a deploy")


def test_every_older_version_has_an_upcaster() -> None:
    for kind in kinds.KINDS.values():
        for version in range(1, kind.VERSION):
            assert (kind.KIND, version) in kinds.UPCASTERS


# ---- the chain


def log_of(count: int) -> list[Entry]:
    drafts = [kinds.draft(kinds.Released(why=f"reason {n}"), at=n, payload=f'"{n}"') for n in range(count)]
    return list(seal(SECRET, Head(0, b""), 1, drafts).entries)


def test_a_log_verifies_and_gives_its_end() -> None:
    entries = log_of(5)
    assert verify(SECRET, "r", entries) == Head(5, entries[-1].digest)


@pytest.mark.parametrize("field", ["epoch", "kind", "version", "at", "scope", "key", "body", "payload", "data_class"])
def test_any_change_breaks_the_chain_at_its_entry(field: str) -> None:
    entries = log_of(5)
    was = getattr(entries[2], field)
    changed = {one.name: getattr(entries[2], one.name) for one in fields(Entry)}
    changed[field] = was + 1 if isinstance(was, int) else f"{was}x"
    entries[2] = Entry(**changed)
    with pytest.raises(ChainBroken) as caught:
        verify(SECRET, "r", entries)
    assert caught.value.seq == 2


def test_a_missing_or_moved_entry_breaks_the_chain() -> None:
    entries = log_of(5)
    with pytest.raises(ChainBroken):
        verify(SECRET, "r", [*entries[:2], *entries[3:]])
    with pytest.raises(ChainBroken):
        verify(SECRET, "r", [entries[1], entries[0], *entries[2:]])
    with pytest.raises(ChainBroken):
        verify(b"x" * 32, "r", entries)


def test_a_large_payload_goes_to_a_blob_by_its_size_in_bytes() -> None:
    small, large = '"' + "x" * (BLOB_BYTES - 2) + '"', '"' + "ü" * (BLOB_BYTES // 2) + '"'
    sealed = seal(
        SECRET, Head(0, b""), 1, [kinds.draft(kinds.Released(why="w"), at=0, payload=one) for one in (small, large)]
    )
    assert [one.blob is not None for one in sealed.entries] == [False, True]
    assert sealed.blobs == ((sealed.entries[1].blob, large),)
    assert "ü" not in repr(sealed.entries)


def test_an_entry_whose_blob_is_lost_is_neither_read_nor_verified_nor_folded() -> None:
    drafts = [
        kinds.draft(kinds.Released(why="w"), at=0, payload=one) for one in ('"small"', '"' + "x" * BLOB_BYTES + '"')
    ]
    sealed = seal(SECRET, Head(0, b""), 1, drafts)
    ((_, large),) = sealed.blobs
    whole = [sealed.entries[0], replace(sealed.entries[1], payload=large)]
    assert verify(SECRET, "r", whole) == sealed.head
    assert kinds.read(whole[1]) == kinds.Released(why="w")
    with pytest.raises(ChainBroken) as broken:
        verify(SECRET, "r", sealed.entries)
    assert broken.value.seq == 1
    with pytest.raises(UndecodableEntry, match=r"entry 1 \(released\) cannot be read: its payload is lost"):
        kinds.read(sealed.entries[1])
    with pytest.raises(UndecodableEntry):
        fold(sealed.entries)


@pytest.mark.parametrize("name", ["kind", "scope", "key", "body", "payload", "data_class", "key_id"])
@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\ud800" + "x" * BLOB_BYTES, "\0" + "x" * BLOB_BYTES])
def test_text_that_no_database_takes_is_not_sealed(name: str, text: str) -> None:
    plain = kinds.draft(kinds.Released(why="w"), at=0)
    texts = {"kind": plain.kind, "scope": "", "key": "", "body": plain.body, name: text}
    with pytest.raises(NotSerialisable) as caught:
        seal(SECRET, Head(7, b""), 1, [plain, Draft(version=1, at=0, **texts)])
    assert (name in caught.value.what, "entry 8" in caught.value.where) == (True, True)


# ---- fold


def test_folding_is_pure_and_names_what_it_cannot_fold() -> None:
    entries = log_of(3)
    assert fold(entries) == fold(entries) == Fold()
    orphan = entry(kinds.draft(kinds.Absent(operation="op-1", attempt=1, how="lookup"), at=0))
    with pytest.raises(UndecodableEntry, match="has no intent"):
        fold([orphan])
