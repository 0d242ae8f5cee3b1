"""What all verdicts come to: by agent and version, as JSON, and as JUnit's XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from xml.etree import ElementTree as xml

from outlive.gate.judged import VERDICTS, Judged, Verdict

_SPACES = {number: " " for number in (*range(32), 0xFFFE, 0xFFFF) if number not in (9, 10, 13)}


@dataclass(slots=True)
class Line:
    """One version of an agent: how many of its runs came to what."""

    agent: str
    version: str
    verdicts: Counter[Verdict] = field(default_factory=Counter)

    @property
    def runs(self) -> int:
        """How many there were."""
        return self.verdicts.total()


@dataclass(slots=True)
class Report:
    """All that was judged. `uncovered` are agents that were asked for, or that the application has, without a run."""

    judged: list[Judged] = field(default_factory=list)
    uncovered: tuple[str, ...] = ()
    alone: bool = True

    @property
    def lines(self) -> list[Line]:
        """By agent and version."""
        found: dict[tuple[str, str], Line] = {}
        for one in self.judged:
            found.setdefault((one.agent, one.version), Line(one.agent, one.version)).verdicts[one.verdict] += 1
        return [found[key] for key in sorted(found)]

    @property
    def worst(self) -> Verdict | None:
        """The worst verdict of all; None where nothing was judged."""
        return max((one.verdict for one in self.judged), key=VERDICTS.index, default=None)

    def told(self, *, all: bool) -> list[Judged]:
        """What a person should see, the worst first; with `all` what is the same too."""
        shown = [one for one in self.judged if all or not one.good or one.notes]
        return sorted(shown, key=lambda one: (-VERDICTS.index(one.verdict), one.agent, one.version, one.run))

    def json(self) -> dict[str, object]:
        """For programs; the fields are in docs/cli.md."""
        return {
            "verdict": self.worst, "runs": len(self.judged), "alone": self.alone, "uncovered": list(self.uncovered),
            "versions": [
                {"agent": one.agent, "version": one.version, **{name: one.verdicts[name] for name in VERDICTS}}
                for one in self.lines
            ],
            "judged": [{**asdict(one), "said": one.said()} for one in self.told(all=True)],
        }  # fmt: skip

    def junit(self) -> str:
        """A test suite for each version of an agent, a test case for each run."""
        root = xml.Element("testsuites", name="outlive replay")
        for line in self.lines:
            of = [one for one in self.judged if (one.agent, one.version) == (line.agent, line.version)]
            root.append(_suite(line, of))
        return xml.tostring(root, encoding="unicode", xml_declaration=True)


def _suite(line: Line, of: Sequence[Judged]) -> xml.Element:
    name, bad = _clean(f"{line.agent} version {line.version}"), sum(not one.good for one in of)
    suite = xml.Element("testsuite", name=name, tests=str(len(of)), failures=str(bad), errors="0")
    for one in sorted(of, key=lambda one: one.run):
        case = xml.SubElement(suite, "testcase", classname=name, name=_clean(f"{one.tenant}/{one.run}"))
        if not one.good:
            failure = xml.SubElement(case, "failure", type=one.verdict, message=_clean(one.said()))
            failure.text = _clean("\n".join([one.why or one.said(), *one.remedies]))
        if one.notes:
            xml.SubElement(case, "system-out").text = _clean("\n".join(one.notes))
    return suite


def _clean(text: str) -> str:
    """Without what XML cannot have."""
    return text.translate(_SPACES).encode("utf-8", "replace").decode()


def uncovered(judged: Iterable[Judged], agents: Iterable[str]) -> tuple[str, ...]:
    """The agents of which no run was judged."""
    return tuple(sorted(set(agents) - {one.agent for one in judged}))
