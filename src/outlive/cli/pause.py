"""`outlive pause`: let runs stand still."""

from __future__ import annotations

from outlive.cli import many, options

EXAMPLES = (
    "outlive pause dunning-2026-03 --why 'the bank is down until noon'",
    "outlive pause --agent dunning --why 'the bank is down until noon'",
)


def pause(
    *,
    run: many.OneRun = None,
    status: many.Statuses = None,
    agent: many.Agent = None,
    reason: many.Reason = None,
    label: many.Label = None,
    older_than: many.OlderThan = None,
    dry_run: many.DryRun = False,
    why: options.WhyUnlessDry = None,
    who: options.Who = None,
    wait: options.Wait = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Let a run, or many, stand still until `outlive resume`.

    Calls in flight reach their record first. What it is sent meanwhile is kept; its deadline still counts. Until one
    run stands still it waits 60 s; of many it only asks, if no --wait is given. Exits with 75 if one run was asked and
    does not stand still yet, 1 if it has ended.
    """
    from outlive.app import stopping

    choice = many.Choice(status=status, agent=agent, reason=reason, label=label, older_than=older_than)
    given: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    said = options.said(why, dry_run=dry_run)
    verb = stopping.pausing(who or options.user(), said, wait=many.patience(wait, run, "60s"))
    many.stop(given, run, choice, verb, dry_run=dry_run, done="paused", how=many.CHOOSING)
