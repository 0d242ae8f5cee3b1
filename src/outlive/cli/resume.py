"""`outlive resume`: let paused runs go on."""

from __future__ import annotations

from typing import Annotated

import typer

from outlive.cli import many, options

EXAMPLES = (
    "outlive resume dunning-2026-03 --why 'the bank is back'",
    "outlive resume --paused --agent dunning --why 'the bank is back'",
)


def resume(
    *,
    run: many.OneRun = None,
    status: many.Statuses = None,
    agent: many.Agent = None,
    reason: many.Reason = None,
    label: many.Label = None,
    older_than: many.OlderThan = None,
    paused: Annotated[bool, typer.Option("--paused", help="All paused runs instead of one.")] = False,
    dry_run: many.DryRun = False,
    why: options.WhyUnlessDry = None,
    who: options.Who = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Let a paused run, or many, go on where they were.

    Of many, only those that are paused are taken; one that was asked to pause and does not stand still yet is not.
    """
    from outlive.app import stopping

    choice = many.Choice(
        status=status, agent=agent, reason=reason, label=label, older_than=older_than, paused=paused or None
    )
    given: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    verb = stopping.resuming(who or options.user(), options.said(why, dry_run=dry_run))
    many.stop(given, run, choice, verb, dry_run=dry_run, done="resumed", paused=True)
