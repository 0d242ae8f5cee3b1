"""`outlive export`, `outlive import` and the verification of a bundle: whose key is gone by, and what is said of it.

A bundle is read under a key that the store knows. One that carries its key is believed only as far as that goes: it was
not damaged on its way; who wrote it, nobody can say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace

from outlive.duty.bundle import Bundle, key_id, written
from outlive.model.errors import KeyDiffers, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.store.bundles import Part
from outlive.store.keeping import Kept


@dataclass(frozen=True, slots=True)
class Carried:
    """What a bundle had. `added` is False where the store has the run already; `status` is the one it was written with.

    `own_key` says that it was verified under the key that it carries itself. `missing` are the runs that it goes back
    to as a fork and that are not here, `forked` that there were forks of it: what those have done is asked before
    anything is sent, and nobody here can tell.
    """

    tenant: str
    run: str
    entries: int
    status: str
    ended: bool
    own_key: bool = False
    added: bool = False
    missing: tuple[str, ...] = ()
    forked: bool = False


async def bundle_of(store: Kept, tenant: Tenant, run: str, *, with_key: bool) -> AsyncIterator[str]:
    """The lines of a run's bundle. Raises UnknownRun, and ChainBroken for a log that does not fit."""
    secret = await store.known_key(tenant)
    if secret is None:
        raise UnknownRun(run=run)
    async for line in written(store, tenant, RunId(run), secret, with_key=with_key):
        yield line


async def take_in(store: Kept, lines: Iterable[bytes], tenant: Tenant | None) -> Carried:
    """Store the run of a bundle, in `tenant` or in the one that it came from.

    The tenant's key has to be that of the bundle; a tenant without a key takes the one that the bundle carries. Raises
    KeyDiffers, BadBundle, RunExists; then nothing is stored.
    """
    bundle = Bundle(lines)
    whose = tenant or bundle.header.tenant
    secret, own = await _key(store, bundle, whose, storing=True)
    parts = _Counted(bundle.parts(secret))
    added = await store.put_run(whose, parts, secret)
    missing = tuple([run for run in parts.before if await store.run(whose, RunId(run)) is None])
    return replace(parts.carried(whose, own_key=own, added=added), missing=missing)


async def verify(store: Kept, lines: Iterable[bytes], tenant: Tenant | None) -> Carried:
    """Read a bundle to its end and store nothing. Raises KeyDiffers, BadBundle."""
    bundle = Bundle(lines)
    whose = tenant or bundle.header.tenant
    secret, own = await _key(store, bundle, whose, storing=False)
    parts = _Counted(bundle.parts(secret))
    for _ in parts:
        pass
    return parts.carried(whose, own_key=own, added=False)


async def _key(store: Kept, bundle: Bundle, tenant: Tenant, *, storing: bool) -> tuple[bytes, bool]:
    """The key to read it under, and whether that is the bundle's own word."""
    header, known = bundle.header, await store.known_key(tenant)
    if known is not None and key_id(known) == header.key_id:
        return known, False
    if header.key is not None and (known is None or not storing):
        return header.key, True
    if known is None:
        why = f"tenant {tenant} has no key here yet, and the bundle carries none; export it with --with-key"
    elif storing:
        why = f"tenant {tenant} has the key {key_id(known)}; import it into a tenant of its own, with --tenant"
    else:
        why = f"tenant {tenant} has the key {key_id(known)}, and the bundle carries none; ask the store that wrote it"
    raise KeyDiffers(bundle=header.key_id, tenant=tenant, why=why)


class _Counted:
    """The parts on their way, counted."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts, self._entries = iter(parts), 0
        self._run, self._status, self._ended, self._forked = "", "", False, False
        self.before: tuple[str, ...] = ()

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> Part:
        kind, row = next(self._parts)
        self._entries += kind == "entry"
        if kind == "run":
            self._run, self._status, self._ended = str(row["id"]), str(row["status"]), row["ended_at"] is not None
            self._forked = bool(row["forked"])
            if row["fork_of"] is not None:
                self.before = tuple(dict.fromkeys((str(row["fork_of"]), str(row["origin"]))))
        return kind, row

    def carried(self, tenant: str, *, own_key: bool, added: bool) -> Carried:
        """What has come past."""
        return Carried(tenant, self._run, self._entries, self._status, self._ended, own_key, added, forked=self._forked)
