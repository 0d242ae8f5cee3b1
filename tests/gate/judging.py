"""What the gate says of a run, as it stands in the store of a stage."""

from __future__ import annotations

import re
from typing import cast

from outlive.engine.adoption import ALL
from outlive.gate.judge import Bench, judge
from outlive.gate.judged import Judged
from outlive.gate.recorded import recorded
from outlive.gate.watch import the_watch
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.keeping import Kept
from tests.gate.case import Case
from tests.gate.releases import Release
from tests.gate.stage import RUN, Lived, Stage

# Behind what the code asks for the gate says what it has raised there, which the live system does not record.
_RAISED = re.compile(r", with \w+: .*$", re.S)


async def verdict(stage: Stage, release: Release) -> Judged:
    """What the gate says, before the new release is deployed, of the run that stands in that store."""
    return await judge(
        Bench(release.registry, stage.store, the_watch()), await recorded(cast(Kept, stage.store), DEFAULT_TENANT, RUN)
    )


def disagreements(case: Case, lived: Lived, judged: Judged) -> list[str]:
    """Where the gate does not say what the case expects, or does not agree with the live system."""
    found = []
    if judged.verdict != case.expected.verdict:
        found.append(f"the gate says {judged.verdict}, not {case.expected.verdict}: {judged.said()}")
    if case.expected.noted not in "\n".join(judged.notes):
        found.append(f"the gate notes {judged.notes}")
    if judged.verdict == "breaks" and lived.adopted:
        found.append(f"the gate says {judged.said()}, and live it went on when it was adopted")
    return [*found, *disagree(lived, judged)]


def disagree(lived: Lived, judged: Judged) -> list[str]:
    """The rule by which gate and live system agree about one run.

    *same* and *compatible*: it goes on, and nothing that was recorded is done again. *needs adoption*: it diverges,
    there are the ways to adopt that the gate has told, and it goes on after those that a case names. *breaks*: it
    diverges at that entry, with the same words, or nobody takes it. Whatever it is, what diverged has done nothing.
    """
    found, told = [], f"the gate says {judged.said()}, and live it {lived.how}"
    if judged.good and (lived.how not in ("goes on", "fails") or lived.repeated):
        found.append(told)
    if not judged.good and lived.how not in ("diverges", "unclaimed"):
        found.append(told)
    if judged.verdict == "needs adoption":
        ways = {way for one in judged.remedies for way in ALL if f" --{way} " in one}
        if not ways or not {*ways, *lived.adopted[:1]} <= set(lived.choices) or not set(lived.adopted[:1]) <= ways:
            found.append(f"the gate tells of {judged.remedies}, and live there is {lived.choices}")
    if lived.how == "diverges" and judged.expected:
        said = (judged.entry, judged.expected, _RAISED.sub("", judged.found))
        if said != (lived.entry, lived.has, lived.asks):
            found.append(f"the gate says {said}, and live it is {(lived.entry, lived.has, lived.asks)}")
    return found
