"""`Outlive`: what an application is. Constructing it does no I/O; entering it opens the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from typing_extensions import TypeVar as DefaultTypeVar

from outlive.app import frameworks
from outlive.app.approvals import Approvals
from outlive.app.client import Handle
from outlive.app.complete import complete
from outlive.app.compose import attend_duties, attend_streams, open_store, worker_of
from outlive.app.given import check_start, check_texts
from outlive.app.registry import Registry
from outlive.app.settings import Settings
from outlive.duty.route import Route, Routes
from outlive.engine.approval import Roles
from outlive.engine.control import Control
from outlive.engine.definition import (
    DEDUPES_FOR,
    SETTLE_AFTER,
    TOOL_TIMEOUT,
    Agent,
    OnFailure,
    Tool,
    ToolPolicy,
)
from outlive.engine.operation import Operation
from outlive.engine.rules import Adopts
from outlive.engine.run import Run
from outlive.engine.worker import Worker, owner_name
from outlive.log.canonical import canonical, digest
from outlive.model.approval import Approval
from outlive.model.clock import Clock, SystemClock
from outlive.model.errors import RunExists, StoreUnavailable
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import DidNotHappen, Effect, Happened, Retry, Unclear
from outlive.model.run import NewRun
from outlive.secret.port import Secrets
from outlive.secret.urls import without_password
from outlive.store.port import Store

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - as the public surface names it
D = DefaultTypeVar("D", default=None)


class ToolDecorator(Protocol[D]):
    """What `@app.tool(…)` gives: a function whose first parameter is its operation becomes a tool."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Operation[D], P], Coroutine[Any, Any, R]], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Operation[D], P], R], /) -> Tool[P, R]: ...


class LookedUpToolDecorator(Protocol[R, D]):
    """As `ToolDecorator`, for a tool whose look-up knows outcomes of type R: the tool has to give the same."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Operation[D], P], Coroutine[Any, Any, R]], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Operation[D], P], R], /) -> Tool[P, R]: ...


class AgentDecorator(Protocol[D]):
    """What `@app.agent(…)` gives: an async function of a run and one input becomes an agent."""

    def __call__(self, fn: Callable[[Run[D], I], Coroutine[Any, Any, R]], /) -> Agent[I, R]: ...


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield None


class Outlive(Generic[D]):
    """An application: agents and tools, what they depend on, and where their runs live.

    `store` is a URL (default: the setting `store`). `deps` opens what tools and agents need, once per worker; it is
    never logged. `include` names modules that a worker and the command line import, so that agents' modules can import
    this object without a cycle. `roles` gives the roles that somebody has: when they decide, and again when what they
    approved is sent. `notify` are the routes of notifications (default: the setting).
    `async with app:` opens the store for `start` and `handle`.
    """

    def __init__(
        self, store: str | None = None, *, deps: Callable[[], AbstractAsyncContextManager[D]] | None = None,
        include: Sequence[str] = (), secrets: Secrets | None = None, clock: Clock | None = None,
        roles: Roles | None = None, notify: Sequence[Route] | None = None,
    ) -> None:  # fmt: skip
        self.registry = Registry(include)
        self.has_deps = deps is not None
        self.deps = deps if deps is not None else cast("Callable[[], AbstractAsyncContextManager[D]]", _nothing)
        self.secrets = secrets
        self.roles = roles
        self._url = store
        self._notify = None if notify is None else Routes(tuple(notify))
        self._clock: Clock = clock or SystemClock()
        self._store: Store | None = None
        self._worker: Worker | None = None

    # ---- registering

    @overload
    def tool(
        self, *, effect: Effect = "external", name: str | None = None, reconcile: None = None,
        settle_after: timedelta = SETTLE_AFTER, dedupes_for: timedelta = DEDUPES_FOR,
        raises: tuple[type[Exception], ...] = (), not_sent: tuple[type[Exception], ...] = (),
        timeout: timedelta = TOOL_TIMEOUT, retry: Retry | None = None,
        approval: Approval | Callable[..., Approval | None] | None = None,
        compensate: Callable[[Operation[D]], object] | Tool[[], object] | None = None,
        key: Callable[..., str] | None = None,
    ) -> ToolDecorator[D]: ...  # fmt: skip
    @overload
    def tool(
        self, *, effect: Effect = "external", name: str | None = None,
        reconcile: Callable[[Operation[D]], Awaitable[Happened[R] | DidNotHappen | Unclear]],
        settle_after: timedelta = SETTLE_AFTER, dedupes_for: timedelta = DEDUPES_FOR,
        raises: tuple[type[Exception], ...] = (), not_sent: tuple[type[Exception], ...] = (),
        timeout: timedelta = TOOL_TIMEOUT, retry: Retry | None = None,
        approval: Approval | Callable[..., Approval | None] | None = None,
        compensate: Callable[[Operation[D]], object] | Tool[[], object] | None = None,
        key: Callable[..., str] | None = None,
    ) -> LookedUpToolDecorator[R, D]: ...  # fmt: skip
    def tool(
        self, *, effect: Effect = "external", name: str | None = None,
        reconcile: Callable[[Operation[D]], Awaitable[Happened[Any] | DidNotHappen | Unclear]] | None = None,
        settle_after: timedelta = SETTLE_AFTER, dedupes_for: timedelta = DEDUPES_FOR,
        raises: tuple[type[Exception], ...] = (), not_sent: tuple[type[Exception], ...] = (),
        timeout: timedelta = TOOL_TIMEOUT, retry: Retry | None = None,
        approval: Approval | Callable[..., Approval | None] | None = None,
        compensate: Callable[[Operation[D]], object] | Tool[[], object] | None = None,
        key: Callable[..., str] | None = None,
    ) -> ToolDecorator[D] | LookedUpToolDecorator[Any, D]:  # fmt: skip
        """Register a tool: a function that acts on the outside world, and what repeating it would do.

        `effect`: *read* is harmless; *idempotent* is deduped by the other side on `op.key`, for `dedupes_for` after the
        first send; *transactional* writes through `op.connection`; *external* (the default) may act twice. `reconcile`
        looks up whether a call happened. `settle_after` is how long the other side may take to act on a request, never
        0. `raises` are outcomes the agent can catch; `not_sent` say that nothing happened, so that `retry` applies.
        `approval` is what people must agree to before it is sent: always, or as a plain function of the tool's own
        parameters (by their names and types) says, which gives an `Approval` or None. `compensate` undoes a call that
        succeeded, in a rollback: a function of an operation that has an `original`, *external* as it is, or a
        registered tool that takes nothing but its operation and declares an effect of its own. `key` makes a call one
        action of the tenant, whichever run does it: a plain function of the tool's own parameters that gives a text.
        """
        policy = ToolPolicy(
            effect, reconcile, settle_after, dedupes_for, raises, not_sent, timeout, retry or Retry(), approval,
            compensate, key,
        )  # fmt: skip

        def register(fn: Callable[..., Any]) -> Tool[..., Any]:
            made: Tool[..., Any] = Tool(name or fn.__name__, fn, policy)
            self.registry.add_tool(made)
            return made

        return cast("ToolDecorator[D]", register)

    @overload
    def agent(
        self, *, name: str | None = None, version: str = "1", pin: bool = False,
        renamed: Mapping[str, str] | None = None, on_failure: OnFailure = "nothing",
        adopts: Mapping[str, Adopts | Callable[[Any], object]] | None = None,
    ) -> AgentDecorator[D]: ...  # fmt: skip
    @overload
    def agent(self, framework: object, **settings: Any) -> Agent[str, Any]: ...
    def agent(self, framework: object = None, **settings: Any) -> AgentDecorator[D] | Agent[str, Any]:
        """Register an agent: `async def name(run, input)`. A run remembers the version that started it.

        A run that is started with `pin` is driven only by workers that serve the same version. `renamed` maps former
        names of steps and tools to what they are called now: what is recorded under the old name counts as theirs. With
        `on_failure="rollback"` what a run has done is undone when its agent raises. `adopts` says by version what this
        one adopts of older runs: a function that makes the state of its loop of turns out of the old one, or `Adopts`.

        An agent of a framework is registered as `app.agent(Agent(…), …)`, with the settings that the `agent` of its
        adapter takes (`outlive.pydantic_ai`, …).
        """
        return self._decorator(**settings) if framework is None else frameworks.register(self, framework, settings)

    def _decorator(
        self, *, name: str | None = None, version: str = "1", pin: bool = False,
        renamed: Mapping[str, str] | None = None, on_failure: OnFailure = "nothing",
        adopts: Mapping[str, Adopts | Callable[[Any], object]] | None = None,
    ) -> AgentDecorator[D]:  # fmt: skip
        def register(fn: Callable[[Run[D], I], Coroutine[Any, Any, R]], /) -> Agent[I, R]:
            made: Agent[I, R] = Agent(
                name or fn.__name__, version, fn, pin=pin, renamed=renamed, on_failure=on_failure, adopts=adopts
            )  # fmt: skip
            self.registry.add_agent(made)
            return made

        return register

    # ---- starting and asking

    async def start(
        self, agent: Agent[I, R], input: I, /, *, id: str | None = None, queue: str = "default", priority: int = 0,
        deadline: timedelta | None = None, tenant: str = "default", principal: str = "", purpose: str = "",
        identity: str | None = None, labels: dict[str, str] | None = None, connection: object = None,
    ) -> Handle[R]:  # fmt: skip
        """Start a run, durably, and return at once; a worker will do it.

        With an `id` starting is idempotent: the same id, agent and input is the same run; another agent or input
        raises RunExists and starts nothing. Higher `priority` goes first. Raises BadArguments for an input that does
        not fit the agent, and for texts and numbers that cannot be stored.

        With `connection` (of psycopg, or of sqlite3 in its own thread) it happens in that connection's transaction: the
        run is there exactly when that commits, and a worker finds it when it looks next. Refused for a connection to
        another database, and for one without a transaction.
        """
        arguments = agent.signature.bind((input,), {})
        (value,) = arguments.values()
        text = agent.input.encode(value, where=f"the input of {agent.name}")
        run = RunId(id if id is not None else f"{agent.name}-{self._clock.token()[:16]}")
        new = NewRun(
            Tenant(tenant), run, agent.name, agent.version, text, "", queue, priority,
            None if deadline is None else int(deadline.total_seconds() * 1000), principal, purpose,
            identity, labels or {}, agent.pin,
        )  # fmt: skip
        check_start(new)
        key = await self.opened.key(Tenant(tenant), within=connection)
        digested = digest(key, b"input", agent.name.encode(), canonical(value))[:32]
        new = replace(new, input_digest=digested)
        row = await self.opened.start(new, now=self._clock.now(), within=connection)
        if row.agent != agent.name:
            raise RunExists(run=run, differs=f"agent ({row.agent})")
        if row.input_digest != digested:
            raise RunExists(run=run, differs="input")
        if self._worker is not None and connection is None:
            self._worker.hint()
        return self.handle(agent, run, tenant=tenant)

    def handle(self, agent: Agent[I, R], id: str, /, *, tenant: str = "default") -> Handle[R]:
        """A handle of a run that was started before, here or elsewhere. Does no I/O.

        Raises BadArguments for an id or a tenant that no run can have: with a NUL or half of a surrogate pair.
        """
        check_texts("handle", [("id", id), ("tenant", tenant)])
        return Handle(lambda: self.opened, self._clock, agent, Tenant(tenant), RunId(id))

    async def complete(
        self, operation_id: str, outcome: Happened[Any] | DidNotHappen, /, *, key: str, attempt: int | None = None,
        tenant: str = "default",
    ) -> None:  # fmt: skip
        """Tell what became of an operation whose tool has returned `op.pending(…)`: its call returns the outcome then,
        or is tried again.

        It is stored when this returns. Told early, late, or of another operation, it counts as evidence. `key` names
        what is told, such as the id of the event at the other side: a second one with the same key changes nothing. An
        outcome is a result of the tool, or JSON data that is one. `attempt` is the `op.attempt` of which it is told
        (None: the last one). Raises UnknownOperation; BadArguments for what does not fit; TooEarly for a `DidNotHappen`
        of an ended run while a request may still be on its way.
        """
        self.registry.load()
        control = Control(self.opened, self._clock, owner_name(self._clock))
        await complete(control, self.registry, Tenant(tenant), operation_id, outcome, key=key, attempt=attempt)

    @property
    def approvals(self) -> Approvals:
        """What waits for an approval, and how it is decided."""
        return Approvals(lambda: self.opened, self._clock, self.registry, self.roles)

    # ---- running

    @property
    def opened(self) -> Store:
        """The open store. Raises StoreUnavailable outside `async with app`."""
        if self._store is None:
            raise StoreUnavailable(
                store=without_password(self._url or "the store"), why="it is not open; use `async with app:`"
            )
        return self._store

    @asynccontextmanager
    async def worker(
        self, *, concurrency: int | None = None, queues: Sequence[str] = ("default",)
    ) -> AsyncIterator[None]:
        """Drive runs of these queues in this process, beside other code, until the block ends; then drain.

        `concurrency`: runs at once (default: the setting, 100). Needs `async with app`.
        """
        settings = self.settings()
        if concurrency is not None:
            settings = replace(settings, concurrency=concurrency)
        async with self.deps() as deps:
            self.registry.load()
            worker = worker_of(
                self.registry, self.opened, settings, self._clock, deps, secrets=self.secrets, roles=self.roles
            )  # fmt: skip
            attend_duties(worker, self.opened, settings, self._clock)
            attend_streams(worker, self.opened, self._clock)
            worker.pace = replace(worker.pace, queues=tuple(queues))
            self._worker = worker
            try:
                async with worker.beside():
                    yield
            finally:
                self._worker = None

    def settings(self) -> Settings:
        """The settings of this process; store and routes are those that the application names, if it does."""
        return Settings.load(store=self._url, notify=self._notify)

    async def open(self, settings: Settings | None = None) -> None:
        """Open the store. Raises StoreUnavailable, SchemaTooNew, UnsafeDurability, SettingInvalid."""
        if self._store is None:
            self._store = await open_store(settings or self.settings(), self._clock)

    def use(self, store: Store) -> None:
        """Work on a store that somebody else opened and will close: for tests, and for several applications of one."""
        self._store = store

    async def close(self) -> None:
        """Close the store."""
        store, self._store = self._store, None
        if store is not None:
            await store.close()

    async def __aenter__(self) -> Outlive[D]:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
