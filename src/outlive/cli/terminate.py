"""`outlive terminate`: end runs at once, whatever they are doing."""

from __future__ import annotations

from outlive.cli import many, options

EXAMPLES = (
    "outlive terminate dunning-2026-03 --why 'its worker does not answer'",
    "outlive terminate --agent dunning --status blocked --why 'written off' --dry-run",
)


def terminate(
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
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """End a run, or many, at once; try `outlive cancel` first.

    Its code does not clean up, and nothing that its worker does from now on is recorded, but for what it learns of
    calls that were sent: these are in doubt, and listed in `outlive show`.
    """
    from outlive.app import stopping

    choice = many.Choice(
        status=status, agent=agent, reason=reason, label=label, older_than=older_than, paused=paused or None
    )
    given: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    verb = stopping.terminating(who or options.user(), options.said(why, dry_run=dry_run))
    many.stop(given, run, choice, verb, dry_run=dry_run, done="terminated")
