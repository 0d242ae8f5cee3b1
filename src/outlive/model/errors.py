"""Every error that leaves this package, grouped by what a caller would do about it.

OutliveError
├── AgentError                what agent code may catch; the same object, live and on replay
│   ├── StepFailed            a step raised, or ran out of time, and its retries are spent
│   ├── ToolFailed            a tool is known not to have acted, and its retries are spent
│   ├── Abandoned             a person gave up on an operation in doubt
│   ├── Rejected              a person refused an operation, or nobody approved it in time
│   ├── KeyConflict           a business key stands for another action
│   └── Compensated           what a business key stands for was done, and undone
├── CodeError                 fix the code or the call
│   ├── BadArguments          arguments, or a signature, that do not fit
│   ├── NotSerialisable       a value that cannot be written as data-only JSON
│   ├── SecretInSignature     a secret type among the parameters or results of a function
│   ├── Refused               a callable, name or use that cannot be made durable
│   ├── UnknownAgent          no agent of that name is registered
│   ├── DuplicateName         two agents or tools of one name
│   ├── ConcurrentCalls       a second durable call in flight in one scope
│   ├── ScopeError            a durable call from a task that does not own the scope
│   ├── ScopeOpen             a turn ended while a branch was still open
│   ├── ForeignCancellation   something other than the engine cancelled a durable call
│   ├── Diverged              the code asks for something else than the log has
│   └── GraphChanged          a thread waits in a node that the graph does not have
├── RequestError              the request cannot be met as it stands
│   ├── UnknownRun            no run of that id
│   ├── UnknownOperation      no operation of that id in the run, or several that begin so
│   ├── UnknownQuestion       no open question of that id in the run, or several that begin so
│   ├── RunExists             the id is taken by a run with another agent or input
│   ├── NotInDoubt            the operation is settled: there is nothing to resolve
│   ├── NotAdoptable          a divergence that nobody can accept in this way
│   ├── TooEarly              a request may still be on its way: *did not happen* cannot be known yet
│   ├── WrongState            the run is not in a state that allows this
│   ├── NotForkable           no fork can begin behind that entry of a log
│   ├── TimedOut              a wait ran out: for a result, a message or an answer
│   ├── MessageRefused        a message does not fit the type that is waited for
│   ├── UnknownApproval       no approval of that id, or several that begin so
│   ├── ApprovalClosed        the approval is decided, or its time is over
│   ├── ApprovalRefused       an approval does not allow what was to be sent; nothing was written
│   ├── KeyTaken              a business key is another operation's; nothing was written
│   ├── MayNotDecide          this person may not decide about this approval
│   ├── LinkRefused           a link to decide an approval is not good
│   │   ├── LinkForged        it was not made here, or was changed
│   │   ├── LinkExpired       its time is over
│   │   └── LinkUsed          it was used before
│   ├── SettingInvalid        a setting has a value that cannot be used
│   ├── KeyDiffers            a bundle was written under another key than the tenant has
│   ├── ThreadHeld            somebody else writes to the thread of a graph; nothing was written
│   └── SecretMissing         no provider has the secret
├── RunEnded                  what a caller who waits for a result is told
│   ├── RunFailed             the agent raised
│   ├── RunCancelled          somebody has cancelled or terminated it
│   └── RunExpired            the deadline passed
├── StoreError                the database: try again, or call its operator
│   ├── StoreBusy             locked by someone else for longer than we wait; nothing was written
│   ├── StoreFull             no space left; nothing was written
│   ├── StoreUnavailable      cannot be opened or reached; nothing was written
│   │   └── NotAStore         the file is something else; it was left as it is
│   ├── CommitUnknown         the connection was lost around a commit: it may or may not have happened
│   ├── LeaseLost             another worker owns the run, or the log is not where the writer thought
│   ├── SchemaTooNew          the database was written by a newer release
│   └── UnsafeDurability      the database may forget what it acknowledged
└── DataError                 what is stored cannot be trusted: a person must look
    ├── UndecodableEntry      an entry or payload cannot be read
    ├── BadBundle             a bundle was cut off, put in another order, or altered
    ├── ChainBroken           an entry does not carry the digest of the one before
    └── GraphIncomplete       bytes that a checkpoint of a graph names are not in the store
"""

from __future__ import annotations


class OutliveError(Exception):
    """Base of every error that leaves this package."""


class AgentError(OutliveError):
    """What agent code may catch. It is rebuilt from data in the log, so it is the same live and on replay."""


class StepFailed(AgentError):
    """A step raised, or ran out of time, and its retries are spent."""

    def __init__(self, *, name: str, type: str, message: str, data: dict[str, object] | None = None) -> None:
        super().__init__(f"step {name} failed: {type}: {message}")
        self.name, self.type, self.message, self.data = name, type, message, data or {}


class ToolFailed(AgentError):
    """A tool is known not to have acted, and its retries are spent."""

    def __init__(self, *, name: str, type: str, message: str, data: dict[str, object] | None = None) -> None:
        super().__init__(f"tool {name} did not act: {type}: {message}")
        self.name, self.type, self.message, self.data = name, type, message, data or {}


class Abandoned(AgentError):
    """A person gave up on an operation in doubt; whether it happened stays unknown."""

    def __init__(self, *, name: str, operation: str, reason: str) -> None:
        super().__init__(f"operation {operation} ({name}) was abandoned: {reason}")
        self.name, self.operation, self.reason = name, operation, reason


class Rejected(AgentError):
    """A person refused an operation, or nobody approved it in time; it was not sent."""

    def __init__(self, *, name: str, operation: str, reason: str) -> None:
        super().__init__(f"operation {operation} ({name}) was rejected: {reason}")
        self.name, self.operation, self.reason = name, operation, reason


class KeyConflict(AgentError):
    """A business key stands for another action than the one that was asked for; nothing was done."""

    def __init__(self, *, key: str, run: str, operation: str, why: str) -> None:
        self.key, self.run, self.operation, self.why = key, run, operation, why
        super().__init__(f"the business key {key} is that of operation {operation} of run {run}: {why}")


class Compensated(AgentError):
    """What a business key stands for was done, and undone by a rollback; whether to do it anew the code decides."""

    def __init__(self, *, key: str, run: str, operation: str) -> None:
        self.key, self.run, self.operation = key, run, operation
        super().__init__(
            f"operation {operation} of run {run} has done what the business key {key} stands for, and was compensated; "
            "to do it anew, use run.options(effect_key=…)"
        )


class CodeError(OutliveError):
    """The code or the call is wrong; the same call will fail again."""


class BadArguments(CodeError):
    """Arguments, or a signature, that do not fit."""

    def __init__(self, *, function: str, why: str) -> None:
        super().__init__(f"{function}: {why}")
        self.function, self.why = function, why


class NotSerialisable(CodeError):
    """A value that cannot be written as data-only JSON by its annotation."""

    def __init__(self, *, what: str, where: str, why: str) -> None:
        super().__init__(f"{where}: {what} cannot be stored: {why}")
        self.what, self.where, self.why = what, where, why


class SecretInSignature(CodeError):
    """A secret type in a signature would be written to the log; use `await op.secret(name)` inside a tool."""

    def __init__(self, *, function: str, parameter: str) -> None:
        super().__init__(
            f"{function}: {parameter} holds a secret type, which would be written to the log; "
            f"read it inside a tool with `await op.secret(name)`"
        )
        self.function, self.parameter = function, parameter


class Refused(CodeError):
    """A callable, name or use that cannot be made durable; the message says what to do instead."""

    def __init__(self, *, what: str, why: str) -> None:
        super().__init__(f"{what} is refused: {why}")
        self.what, self.why = what, why


class UnknownAgent(CodeError):
    """No agent of that name is registered."""

    def __init__(self, *, name: str, known: tuple[str, ...]) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(f"no agent is called {name!r}; registered: {listed}")
        self.name, self.known = name, known


class DuplicateName(CodeError):
    """Two agents or tools of one name: the log could not tell them apart."""

    def __init__(self, *, kind: str, name: str, first: str, second: str) -> None:
        super().__init__(f"two {kind}s are called {name!r}: {first} and {second}; give one of them name=…")
        self.kind, self.name, self.first, self.second = kind, name, first, second


class ConcurrentCalls(CodeError):
    """A second durable call in flight in one scope has no order that replay could follow."""

    def __init__(self, *, asked: str, in_flight: str, line: str) -> None:
        super().__init__(
            f"{asked} at {line} while {in_flight} is in flight in the same scope; use run.gather, run.map or run.first"
        )
        self.asked, self.in_flight, self.line = asked, in_flight, line


class ScopeError(CodeError):
    """A durable call from a task that does not own the scope."""

    def __init__(self, *, asked: str, line: str) -> None:
        super().__init__(
            f"{asked} at {line} comes from a task that this run did not start; use run.gather, run.map or run.first"
        )
        self.asked, self.line = asked, line


class ScopeOpen(CodeError):
    """A turn ended while a branch was still open."""

    def __init__(self, *, scope: str) -> None:
        super().__init__(f"the turn ended while the branch {scope} was still open; await it first")
        self.scope = scope


class ForeignCancellation(CodeError):
    """Something other than the engine cancelled a durable call, so replay could not cancel it at the same point."""

    def __init__(self, *, call: str, line: str) -> None:
        super().__init__(
            f"{call} at {line} was cancelled from outside (asyncio.timeout, wait_for, a task group); "
            f"use run.options(timeout=…) or run.first"
        )
        self.call, self.line = call, line


class Diverged(CodeError):
    """The code asks for something else than the log has: a fact about this run and this version of the code."""

    def __init__(
        self, *, has: str, asks: str, line: str, seq: int = -1, call: tuple[str, str, str, str] | None = None
    ) -> None:
        at = f" (entry {seq})" if seq >= 0 else ""
        super().__init__(f"the log has {has}{at} here, the code asks for {asks}{' at ' + line if line else ''}")
        self.has, self.asks, self.line, self.seq, self.call = has, asks, line, seq, call
        """`call` is scope, kind, name and digest of what the code asks for, where one call is in the way of another."""


class GraphChanged(CodeError):
    """A thread waits in a node that the graph does not have: it was renamed or removed, and nothing would happen."""

    def __init__(self, *, thread: str, nodes: tuple[str, ...]) -> None:
        which = ", ".join(nodes)
        super().__init__(
            f"thread {thread} goes on in {which}, which this graph does not have; give the node its name back, "
            f"or start anew with an input"
        )
        self.thread, self.nodes = thread, nodes


class RequestError(OutliveError):
    """The request cannot be met as it stands; nothing was changed."""


class UnknownRun(RequestError):
    """No run of that id."""

    def __init__(self, *, run: str) -> None:
        super().__init__(f"no run is called {run!r} in this store")
        self.run = run


class UnknownOperation(RequestError):
    """No operation of that id in the run; or several begin so, which `matches` names. Without `run`: in no run."""

    def __init__(self, *, run: str = "", operation: str, matches: tuple[str, ...] = ()) -> None:
        several = f"{len(matches)} operations that begin with {operation!r}: {', '.join(matches)}"
        where = f"run {run} has" if run else "there is"
        super().__init__(f"{where} {several if matches else f'no operation {operation!r}'}")
        self.run, self.operation, self.matches = run, operation, matches


class UnknownQuestion(RequestError):
    """No open question of that id in the run; or several begin so, which `matches` names. `known` are all open ones."""

    def __init__(
        self, *, run: str, question: str, matches: tuple[str, ...] = (), known: tuple[str, ...] = ()
    ) -> None:  # fmt: skip
        several = f"{len(matches)} open questions that begin with {question!r}: {', '.join(matches)}"
        none = f"no open question {question!r}; open: {', '.join(known) or 'none'}"
        super().__init__(f"run {run} has {several if matches else none}")
        self.run, self.question, self.matches, self.known = run, question, matches, known


class RunExists(RequestError):
    """The id is taken by a run with another agent or another input."""

    def __init__(self, *, run: str, differs: str) -> None:
        super().__init__(f"run {run} exists with another {differs}; nothing was started")
        self.run, self.differs = run, differs


class NotInDoubt(RequestError):
    """The operation is settled: there is nothing to resolve."""

    def __init__(self, *, operation: str, status: str) -> None:
        super().__init__(f"operation {operation} is {status}, not in doubt")
        self.operation, self.status = operation, status


class NotAdoptable(RequestError):
    """Not every divergence can be adopted: what has acted, and what was told to the run, stays recorded."""

    def __init__(self, *, run: str, why: str) -> None:
        super().__init__(f"what differs in run {run} cannot be adopted so: {why}")
        self.run, self.why = run, why


class TooEarly(RequestError):
    """A request may still be on its way: *did not happen* cannot be known yet."""

    def __init__(self, *, operation: str, seconds: float) -> None:
        super().__init__(
            f"a request of operation {operation} may still be on its way; say did-not-happen in {seconds:.0f} s"
        )
        self.operation, self.seconds = operation, seconds


def stands(status: str) -> str:
    """How a run of that status stands, as the end of a sentence: `is waiting`, `has failed`, `was cancelled`."""
    by_word = {"succeeded": "has", "failed": "has", "cancelled": "was", "expired": "has"}
    return f"{by_word.get(status, 'is')} {status}"


class WrongState(RequestError):
    """The run is not in a state that allows this."""

    def __init__(self, *, run: str, status: str, wanted: str) -> None:
        super().__init__(f"run {run} {stands(status)}; {wanted}")
        self.run, self.status, self.wanted = run, status, wanted


class NotForkable(RequestError):
    """No fork can begin behind that entry of a log. `nearest` is the last entry before it behind which one can."""

    def __init__(self, *, run: str, at: int, why: str, nearest: int) -> None:
        super().__init__(
            f"run {run} cannot be forked at entry {at}: {why}; the nearest entry before, at which it can, is {nearest}"
        )
        self.run, self.at, self.why, self.nearest = run, at, why, nearest


class TimedOut(RequestError):
    """A wait ran out: for the result of a run, which goes on, or in an agent for a message or an answer."""

    def __init__(self, *, run: str, status: str, detail: str) -> None:
        super().__init__(f"run {run}: the time is over; it is {status}{' (' + detail + ')' if detail else ''}")
        self.run, self.status, self.detail = run, status, detail


class MessageRefused(RequestError):
    """A message does not fit the type that is waited for. It is recorded, so that it is refused again on replay."""

    def __init__(self, *, wait: str, why: str) -> None:
        super().__init__(f"the message for {wait} does not fit: {why}")
        self.wait, self.why = wait, why


class UnknownApproval(RequestError):
    """No approval of that id, or several whose ids begin so."""

    def __init__(self, *, approval: str, matches: tuple[str, ...] = ()) -> None:
        several = f"; it is the beginning of {', '.join(matches)}" if matches else ""
        super().__init__(f"there is no approval {approval!r}{several}")
        self.approval, self.matches = approval, matches


class ApprovalClosed(RequestError):
    """The approval is decided, used or withdrawn already, or its time is over; nothing was changed."""

    def __init__(self, *, approval: str, status: str) -> None:
        super().__init__(f"approval {approval} is {status} and cannot be decided any more")
        self.approval, self.status = approval, status


class ApprovalRefused(RequestError):
    """An approval does not allow what was to be sent: not given, not for this, or not any more. Nothing was written."""

    def __init__(self, *, approval: str, operation: str) -> None:
        super().__init__(f"approval {approval} does not allow operation {operation} as it was to be sent now")
        self.approval, self.operation = approval, operation


class KeyTaken(RequestError):
    """A business key is another operation's; nothing was written."""

    def __init__(self, *, key: str, operation: str) -> None:
        self.key, self.operation = key, operation
        super().__init__(f"the business key {key} cannot be taken by operation {operation}: another one has it")


class MayNotDecide(RequestError):
    """This person may not decide about this approval; nothing was changed."""

    def __init__(self, *, approval: str, who: str, why: str) -> None:
        super().__init__(f"{who or 'nobody'} may not decide about approval {approval}: {why}")
        self.approval, self.who, self.why = approval, who, why


class LinkRefused(RequestError):
    """A link to decide an approval is not good; nothing was changed."""


class LinkForged(LinkRefused):
    """The link was not made by this store, or was changed since."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"this link was not made here, or was changed: {why}")
        self.why = why


class LinkExpired(LinkRefused):
    """The time of the link is over."""

    def __init__(self, *, approval: str) -> None:
        super().__init__(f"the time of this link to approval {approval} is over")
        self.approval = approval


class LinkUsed(LinkRefused):
    """The link was used before: it is good for one decision."""

    def __init__(self, *, approval: str) -> None:
        super().__init__(f"this link to approval {approval} was used before")
        self.approval = approval


class SettingInvalid(RequestError):
    """A setting has a value that cannot be used."""

    def __init__(self, *, name: str, value: str, source: str, why: str) -> None:
        super().__init__(f"{name} = {value!r} (from {source}): {why}")
        self.name, self.value, self.source, self.why = name, value, source, why


class KeyDiffers(RequestError):
    """A bundle was written under another digest key than the tenant has, or one that is not known here."""

    def __init__(self, *, bundle: str, tenant: str, why: str) -> None:
        super().__init__(f"the bundle was written under key {bundle}: {why}")
        self.bundle, self.tenant, self.why = bundle, tenant, why


class ThreadHeld(RequestError):
    """Somebody else writes to the thread of a graph, or does since; nothing was written."""

    def __init__(self, *, thread: str, holder: str, seconds: float) -> None:
        who = f"held by {holder or 'nobody'}"
        until = f", whose lease ends in {seconds:.1f} s unless it lives" if holder else " any more"
        super().__init__(f"thread {thread} is {who}{until}")
        self.thread, self.holder, self.seconds = thread, holder, seconds


class SecretMissing(RequestError):
    """No provider has the secret."""

    def __init__(self, *, name: str, tried: str) -> None:
        super().__init__(f"no secret {name!r}; tried {tried}")
        self.name, self.tried = name, tried


class RunEnded(OutliveError):
    """The run has ended without a result."""

    def __init__(self, *, run: str, message: str) -> None:
        super().__init__(f"run {run} {message}")
        self.run = run


class RunFailed(RunEnded):
    """The agent raised; `type` and `message` are those of its exception."""

    def __init__(self, *, run: str, type: str, message: str) -> None:
        super().__init__(run=run, message=f"failed: {type}: {message}")
        self.type, self.message = type, message


class RunCancelled(RunEnded):
    """Somebody has cancelled or terminated the run; `why` says who, and why."""

    def __init__(self, *, run: str, why: str) -> None:
        super().__init__(run=run, message=f"was {why}")
        self.why = why


class RunExpired(RunEnded):
    """The deadline passed."""

    def __init__(self, *, run: str) -> None:
        super().__init__(run=run, message="expired: its deadline passed")


class StoreError(OutliveError):
    """The database could not do it."""


class StoreBusy(StoreError):
    """Locked by someone else for longer than we wait; nothing was written."""

    def __init__(self, *, store: str, why: str) -> None:
        super().__init__(f"{store} is locked: {why}")
        self.store, self.why = store, why


class StoreFull(StoreError):
    """No space left; nothing was written."""

    def __init__(self, *, store: str) -> None:
        super().__init__(f"{store}: no space left on the device; nothing was written, free some and it goes on")
        self.store = store


class StoreUnavailable(StoreError):
    """Cannot be opened or reached; nothing was written. `passing`: it may well be over without anybody's doing."""

    def __init__(self, *, store: str, why: str, passing: bool = False) -> None:
        super().__init__(f"{store} cannot be used: {why}")
        self.store, self.why, self.passing = store, why, passing


class NotAStore(StoreUnavailable):
    """The file is something else than a store of this package; it was left as it is."""

    def __init__(self, *, store: str, why: str) -> None:
        super().__init__(store=store, why=why)
        self.args = (f"{store} is not a store of outlive ({why})",)


class CommitUnknown(StoreError):
    """The connection was lost around a commit: it may or may not have happened."""

    def __init__(self, *, store: str) -> None:
        super().__init__(f"{store}: the connection was lost around a commit; its outcome is unknown")
        self.store = store


class LeaseLost(StoreError):
    """Another worker owns the run, or the log is not where the writer thought; nothing was written."""

    def __init__(self, *, run: str, epoch: int) -> None:
        super().__init__(f"run {run} is not ours any more (our epoch was {epoch})")
        self.run, self.epoch = run, epoch


class SchemaTooNew(StoreError):
    """The database was written by a newer release."""

    def __init__(self, *, store: str, found: int, known: int) -> None:
        super().__init__(f"{store} has schema {found}, this release knows up to {known}; upgrade outlive")
        self.store, self.found, self.known = store, found, known


class UnsafeDurability(StoreError):
    """The database may forget what it acknowledged."""

    def __init__(self, *, store: str, setting: str) -> None:
        super().__init__(f"{store}: {setting} may lose acknowledged commits; set it right or pass --unsafe-durability")
        self.store, self.setting = store, setting


class DataError(OutliveError):
    """What is stored cannot be trusted: a person must look."""


class UndecodableEntry(DataError):
    """An entry or payload cannot be read."""

    def __init__(self, *, where: str, why: str) -> None:
        super().__init__(f"{where} cannot be read: {why}")
        self.where, self.why = where, why


class BadBundle(DataError):
    """A bundle was cut off, put in another order, or altered; nothing of it was stored."""

    def __init__(self, *, line: int, why: str, file: str = "") -> None:
        super().__init__(f"line {line} of {file or 'the bundle'}: {why}")
        self.line, self.why = line, why


class ChainBroken(DataError):
    """An entry does not carry the digest of the one before."""

    def __init__(self, *, run: str, seq: int) -> None:
        super().__init__(f"run {run}: entry {seq} does not fit the chain; it or one before it was changed")
        self.run, self.seq = run, seq


class GraphIncomplete(DataError):
    """Bytes that a checkpoint of a graph names are not in the store."""

    def __init__(self, *, thread: str, checkpoint: str, what: str) -> None:
        super().__init__(f"checkpoint {checkpoint} of thread {thread} names {what}, which is not in the store")
        self.thread, self.checkpoint, self.what = thread, checkpoint, what
