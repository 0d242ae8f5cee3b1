"""The only place that names a concrete adapter: from settings to a store, secrets, a kit and a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from outlive.app.registry import Registry
from outlive.app.settings import Settings
from outlive.duty.retention import OrphanBlobs, Retention
from outlive.duty.rota import Duty, Rotation
from outlive.duty.stalls import StallsDuty
from outlive.duty.streaming import DeltasDuty
from outlive.duty.telling import DeadlinesDuty, Sender, TellingDuty, unsigned
from outlive.engine.approval import Roles
from outlive.engine.aside import Aside
from outlive.engine.attempt import Kit
from outlive.engine.authority import DatabaseTime
from outlive.engine.definition import ToolSpec
from outlive.engine.streaming import Streams
from outlive.engine.worker import Pace, Worker, owner_name
from outlive.harness.function import FunctionHarness
from outlive.model.clock import Clock
from outlive.model.errors import SettingInvalid
from outlive.secret.environment import EnvironmentSecrets
from outlive.secret.files import FileSecrets
from outlive.secret.port import ChainSecrets, Secrets, register_all
from outlive.secret.scrubber import Scrubber, scrub_logs
from outlive.store import sqlite
from outlive.store.keeping import Kept
from outlive.store.port import Store
from outlive.store.sqlite import open_sqlite
from outlive.store.streaming import Streaming
from outlive.store.upkeep import Upkeep


async def open_store(settings: Settings, clock: Clock, *, existing: bool = False) -> Kept:
    """The store that the settings name, open. With `existing` nothing is made or migrated.

    Raises SettingInvalid for a scheme that is not known.
    """
    unsafe = settings.unsafe_durability
    if _is_postgres(settings):
        # The driver takes a while to load, and who uses SQLite does not need it.
        from outlive.store.postgres import open_postgres

        return await open_postgres(
            settings.store, clock=clock, unsafe_durability=unsafe, existing=existing, listen_url=settings.listen_url
        )
    return await open_sqlite(settings.store, clock=clock, unsafe_durability=unsafe, existing=existing)


def upkeep_of(settings: Settings) -> Upkeep:
    """The care of the database that the settings name; does no I/O. Raises SettingInvalid."""
    if _is_postgres(settings):
        from outlive.store import postgres

        return postgres.upkeep_of(settings.store, unsafe_durability=settings.unsafe_durability)
    return sqlite.upkeep_of(settings.store, unsafe_durability=settings.unsafe_durability)


def _is_postgres(settings: Settings) -> bool:
    match settings.store.split(":", 1)[0]:
        case "sqlite":
            return False
        case "postgresql" | "postgres":
            return True
        case _:
            raise SettingInvalid(
                name="store", value=settings.place, source=settings.sources.get("store", "argument"),
                why="known are sqlite:///relative/path, sqlite:////absolute/path and postgresql://user@host/database",
            )  # fmt: skip


def secrets_of(settings: Settings) -> Secrets:
    """Files where a directory is set, then the environment."""
    files: list[Secrets] = [FileSecrets(settings.secrets)] if settings.secrets else []
    return ChainSecrets([*files, EnvironmentSecrets()])


def worker_of(
    registry: Registry, store: Store, settings: Settings, clock: Clock, deps: object, *, secrets: Secrets | None = None,
    scrubber: Scrubber | None = None, on_send: Callable[[ToolSpec, str, dict[str, object]], None] | None = None,
    wake_in_place: bool = True, evict: bool = False, roles: Roles | None = None,
) -> Worker:  # fmt: skip
    """A worker for all that is registered."""
    scrubber = scrubber or Scrubber()
    scrub_logs(scrubber)
    secrets = secrets or secrets_of(settings)
    register_all(secrets, scrubber)
    kit = Kit(
        store, clock, DatabaseTime(clock), registry.tool, secrets, scrubber, deps,
        settings.lease.total_seconds(), code=settings.build or registry.build(), wake_in_place=wake_in_place,
        evict=evict, on_send=on_send, grace_s=settings.grace.total_seconds(), roles=roles,
    )  # fmt: skip
    pace = Pace(
        lease_ms=int(settings.lease.total_seconds() * 1000), concurrency=settings.concurrency,
        drain=settings.drain.total_seconds(), stall_limit=settings.stall_limit.total_seconds(),
        stall_notice=settings.stall_notice.total_seconds(), max_lapses=settings.max_lapses,
    )  # fmt: skip
    return Worker(store, kit, registry.agents, FunctionHarness(), pace, owner_name(clock))


def attend_streams(worker: Worker, store: Store, clock: Clock) -> None:
    """Let what calls stream be seen, if the store keeps such text. On the worker's event loop."""
    if isinstance(store, Streaming):
        worker.kit = replace(worker.kit, streams=Streams(store, clock, worker.kit.scrubber))


def attend_duties(worker: Worker, store: Store, settings: Settings, clock: Clock) -> None:
    """Let the worker offer to do what belongs to no run, if its store is one that can be kept in order.

    Raises SettingInvalid for a route whose secret is missing: nobody would be told, and nobody would know.
    """
    for name, missing in unsigned(settings.notify.every, worker.kit.secrets):
        source = settings.sources.get("notify", "option")
        raise SettingInvalid(name="notify", value=name, source=source, why=f"nothing can be signed: {missing}")
    if not isinstance(store, Kept):
        return
    deadlines = DeadlinesDuty(store, settings.deadline_lead, clock)
    duties: list[Duty] = [deadlines, StallsDuty(store, clock), DeltasDuty(store)]
    if settings.retention.by_status:
        duties += [Retention(store, settings.retention), OrphanBlobs(store, store)]
    if settings.notify.every:
        sender = Sender(clock, worker.kit.secrets, worker.kit.scrubber)
        duties.append(TellingDuty(store, settings.notify.every, sender, clock))
    worker.aside = Aside(Rotation(store, clock, worker.owner, duties))
