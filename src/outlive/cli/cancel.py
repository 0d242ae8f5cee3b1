"""`outlive cancel`: ask runs to end; their code may clean up."""

from __future__ import annotations

from typing import Annotated

import typer

from outlive.cli import many, options

EXAMPLES = (
    "outlive cancel dunning-2026-03 --why 'wrong month'",
    "outlive cancel dunning-2026-03 --why 'wrong month' --grace 5m --wait 6m",
    "outlive cancel --agent dunning --label month=march --why 'wrong month' --dry-run",
)


def cancel(
    *,
    run: many.OneRun = None,
    status: many.Statuses = None,
    agent: many.Agent = None,
    reason: many.Reason = None,
    label: many.Label = None,
    older_than: many.OlderThan = None,
    paused: many.Paused = False,
    dry_run: many.DryRun = False,
    why: options.WhyUnlessDry = None,
    who: options.Who = None,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long it may clean up, from when its code is told.")
    ] = "30s",
    wait: options.Wait = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Ask a run, or many, to end; their code may clean up.

    Its code is told wherever it is; a call that may have been sent reaches its record first. A run that is blocked or
    paused, or that no live worker serves, ends at once, without its code. What is in doubt stays in `outlive show`.
    For the end of one run it waits 2 min; of many it only asks, if no --wait is given. Exits with 75 if one run was
    asked and has not ended yet, 1 if it had already ended otherwise.
    """
    from outlive.app import stopping

    choice = many.Choice(
        status=status, agent=agent, reason=reason, label=label, older_than=older_than, paused=paused or None
    )
    given: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    said, span = options.said(why, dry_run=dry_run), options.span_of(grace, "--grace")
    verb = stopping.cancelling(who or options.user(), said, grace=span, wait=many.patience(wait, run, "2m"))
    many.stop(given, run, choice, verb, dry_run=dry_run, done="cancelled")
