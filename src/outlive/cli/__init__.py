"""The `outlive` command: one file per verb. Heavy modules are imported inside verbs, so that help answers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from outlive.cli import (
    adopt,
    answer,
    approvals,
    approve,
    audit,
    cancel,
    check,
    complete,
    config,
    db,
    doctor,
    export,
    fork,
    import_,
    keys,
    log,
    mcp,
    notifications,
    notify,
    pause,
    ps,
    questions,
    reject,
    replay,
    resolve,
    restart,
    resume,
    retention,
    retry,
    rollback,
    run,
    send,
    show,
    start,
    terminate,
    versions,
    worker,
)
from outlive.cli.codes import MEANINGS, guarded
from outlive.cli.group import Verbs

__all__ = ["app", "main"]

# Click keeps the lines of a paragraph that begins so as they are.
_AS_IS = "\b\n"
_CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())

app = typer.Typer(
    name="outlive", cls=Verbs, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
    epilog=f"{_AS_IS}Exit codes:\n{_CODES}\n\nSettings: options, then OUTLIVE_* variables; see `outlive config`.",
)  # fmt: skip


def _add(to: typer.Typer, verb: Callable[..., None], examples: Sequence[str]) -> None:
    to.command(epilog=_AS_IS + "\n".join(["Examples:", *(f"  {one}" for one in examples)]))(guarded(verb))


for _verb, _examples in (
    (run.run, run.EXAMPLES),
    (start.start, start.EXAMPLES),
    (worker.worker, worker.EXAMPLES),
    (mcp.mcp, mcp.EXAMPLES),
    (ps.ps, ps.EXAMPLES),
    (show.show, show.EXAMPLES),
    (log.log, log.EXAMPLES),
    (approvals.approvals, approvals.EXAMPLES),
    (keys.keys, keys.EXAMPLES),
    (approve.approve, approve.EXAMPLES),
    (reject.reject, reject.EXAMPLES),
    (questions.questions, questions.EXAMPLES),
    (notifications.notifications, notifications.EXAMPLES),
    (versions.versions, versions.EXAMPLES),
    (replay.replay, replay.EXAMPLES),
    (send.send, send.EXAMPLES),
    (answer.answer, answer.EXAMPLES),
    (resolve.resolve, resolve.EXAMPLES),
    (complete.complete, complete.EXAMPLES),
    (retry.retry, retry.EXAMPLES),
    (adopt.adopt, adopt.EXAMPLES),
    (cancel.cancel, cancel.EXAMPLES),
    (terminate.terminate, terminate.EXAMPLES),
    (pause.pause, pause.EXAMPLES),
    (resume.resume, resume.EXAMPLES),
    (fork.fork, fork.EXAMPLES),
    (restart.restart, restart.EXAMPLES),
    (rollback.rollback, rollback.EXAMPLES),
    (export.export, export.EXAMPLES),
    (retention.retention, retention.EXAMPLES),
    (doctor.doctor, doctor.EXAMPLES),
    (config.config, config.EXAMPLES),
    (check.check, check.EXAMPLES),
):
    _add(app, _verb, _examples)

app.command("import", epilog=_AS_IS + "\n".join(["Examples:", *(f"  {one}" for one in import_.EXAMPLES)]))(
    guarded(import_.import_)
)

_db = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Make, upgrade or check the database that runs live in.",
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)  # fmt: skip
for _name, _one in (("init", db.init), ("upgrade", db.upgrade), ("check", db.check)):
    _add(_db, _one, db.EXAMPLES[_name])
app.add_typer(_db, name="db")

_audit = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Verify that what is stored is what was written.",
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)  # fmt: skip
_add(_audit, audit.verify, audit.EXAMPLES["verify"])
app.add_typer(_audit, name="audit")


@_audit.callback()
def _only() -> None:
    """Verify that what is stored is what was written."""


_notify = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="See whether those who should be told can be.",
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)  # fmt: skip
_add(_notify, notify.test, notify.EXAMPLES["test"])
app.add_typer(_notify, name="notify")


@_notify.callback()
def _only_test() -> None:
    """See whether those who should be told can be."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"outlive {version('outlive')}")
        raise typer.Exit


@app.callback()
def _outlive(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The process layer for long-running agents: the worker may stop, the task still has an owner."""


def main() -> None:
    """The entry point of the `outlive` command."""
    app()
