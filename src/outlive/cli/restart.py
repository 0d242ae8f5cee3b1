"""`outlive restart`: do tasks once more, from the beginning, as new runs."""

from __future__ import annotations

import typer

from outlive.cli import many, options
from outlive.cli.fork import NewId, Repeat, make
from outlive.cli.screen import put, say

EXAMPLES = (
    "outlive restart dunning-2026-03 --why 'the template was wrong'",
    "outlive restart --status failed --agent dunning --older-than 1h --dry-run",
    "outlive restart --status failed --label month=march --why 'the bank answers again'",
)


def restart(
    *,
    run: many.OneRun = None,
    status: many.Statuses = None,
    agent: many.Agent = None,
    reason: many.Reason = None,
    label: many.Label = None,
    older_than: many.OlderThan = None,
    dry_run: many.DryRun = False,
    id: NewId = None,
    repeat_effects: Repeat = False,
    why: options.WhyUnlessDry = None,
    who: options.Who = None,
    store: options.Store = None,
    tenant: options.Tenant = None,
    unsafe_durability: options.Unsafe = False,
    debug: options.Debug = False,
) -> None:
    """Restart runs that have ended or are paused, as new runs.

    A restart is a fork with nothing but the input as history. What a run has done is not done again: the new one is
    blocked there until somebody decides. Of many, ended ones are taken if no status is asked for, and one that was
    forked before is left alone.
    """
    from outlive.app import operate
    from outlive.model.run import ENDED

    choice = many.Choice(status=status, agent=agent, reason=reason, label=label, older_than=older_than)
    many.check(run, choice)
    if id is not None and (run is None or dry_run):
        raise typer.BadParameter("--id is for one run, which is restarted")
    said = options.said(why, dry_run=dry_run)
    given: dict[str, object] = {"store": store, "tenant": tenant, "unsafe_durability": unsafe_durability or None}
    if run is not None and not dry_run:
        put(make(run, 0, id, said, who, given, repeat_effects=repeat_effects).id)
        say(f"it is a restart of {run}, and ready")
        return
    verb = operate.restarting(who or options.user(), said, repeat_effects=repeat_effects)
    many.act(
        operate.settings_of(None, **given), run, choice, verb, statuses=tuple(ENDED), dry_run=dry_run,
        done="restarted", would=operate.would_restart if run is None else None,
    )  # fmt: skip
