"""`outlive retry`: let blocked runs be tried again."""

from __future__ import annotations

from typing import Annotated

import typer

from outlive.cli import many, options

EXAMPLES = (
    "outlive retry dunning-2026-03 --why 'the bank answers again'",
    "outlive retry --blocked --reason diverged --dry-run",
    "outlive retry --blocked --reason diverged --agent dunning --older-than 2h",
)


def retry(
    *,
    run: many.OneRun = None,
    blocked: Annotated[bool, typer.Option("--blocked", help="All blocked runs instead of one.")] = False,
    reason: many.Reason = None,
    agent: many.Agent = None,
    label: many.Label = None,
    older_than: many.OlderThan = None,
    dry_run: many.DryRun = False,
    why: options.WhyUnlessDry = None,
    who: options.Who = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Let a blocked run, or all, be tried again.

    Nothing in doubt is repeated: an operation in doubt is looked up again, and the run blocks again if that is unclear.
    A line for each run is printed.
    """
    from outlive.app import operate

    choice = many.Choice(agent=agent, reason=reason, label=label, older_than=older_than)
    if (run is None) != blocked:
        raise typer.BadParameter("say either the id of a run or --blocked")
    if choice and not blocked:
        raise typer.BadParameter("--reason, --agent, --label and --older-than go with --blocked")
    if reason is not None and reason not in operate.REASONS:
        raise typer.BadParameter(f"--reason {reason!r}: a run is blocked for {', '.join(operate.REASONS)}")
    settings = operate.settings_of(None, store=store, tenant=tenant, unsafe_durability=unsafe_durability or None)
    verb = operate.retrying(who or options.user(), options.said(why, dry_run=dry_run))
    many.act(
        settings, run, choice, verb, statuses=("blocked",), dry_run=dry_run,
        done="tried again" if dry_run else "ready again",
    )  # fmt: skip
