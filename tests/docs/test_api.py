"""The page of the Python API names everything that the public classes have, and nothing that they do not have."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest

import outlive
from outlive import DidNotHappen, Handle, Happened, Operation, Outlive, Retry, Run, Unclear
from outlive.http import GuardedTransport
from outlive.versions import Adopts
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")
SECTIONS = {head: text for head, _, text in (part.partition("\n") for part in re.split(r"^## ", PAGE, flags=re.M))}

TABLES: dict[str, object] = {
    "Outlive": Outlive,
    "app.tool": Outlive.tool,
    "app.agent": Outlive._decorator,
    "app.start": Outlive.start,
    "app.worker": Outlive.worker,
    "Adopts": Adopts,
    "Retry": Retry,
}
HELD = {"Handle": ("handle", Handle), "Run": ("run", Run), "Operation": ("op", Operation)}
# What the engine does with an operation; tools have no use for it.
ENGINES = {"begin", "begun", "close", "sent_late"}


def parameters(of: object) -> list[str]:
    assert callable(of)
    return [name for name in inspect.signature(of).parameters if name != "self"]


def attributes(of: type) -> set[str]:
    """Public methods, properties, and what `__init__` sets."""
    assigned = " ".join(re.findall(r"^ +(self\.\w.*?)(?:: \S+)? = ", inspect.getsource(vars(of)["__init__"]), re.M))
    names = {*vars(of), *re.findall(r"self\.(\w+)", assigned)}
    return {name for name in names if not name.startswith("_")} - (ENGINES if of is Operation else set())


def row(section: str, name: str) -> str:
    """The first cell of the row that shows `name(`…, or what comes before it in the text."""
    (found,) = re.findall(rf"^\| (.*?\b{re.escape(name)}\(.*?) \| ", SECTIONS[section], re.M)
    return str(found)


@pytest.mark.parametrize("section", TABLES)
def test_a_table_has_the_parameters_and_no_other(section: str) -> None:
    shown = re.findall(r"^\| `(\w+)` \|", SECTIONS[section], re.M)
    assert shown == parameters(TABLES[section])


@pytest.mark.parametrize("section", HELD)
def test_what_is_held_has_what_is_shown_and_no_other(section: str) -> None:
    word, of = HELD[section]
    shown = set(re.findall(rf"`(?:await )?{word}\.(\w+)", SECTIONS[section]))
    assert shown == attributes(of)
    for name in shown:
        member = vars(of).get(name)
        for parameter in parameters(member) if inspect.isfunction(member) else ():
            assert re.search(rf"\b{parameter}\b", row(section, f"{word}.{name}")), f"{word}.{name}: {parameter}"


def test_what_an_application_has_is_on_the_page() -> None:
    assert [name for name in sorted(attributes(Outlive)) if f"app.{name}" not in PAGE] == []
    assert set(re.findall(r"\bapp\.(\w+)", PAGE)) <= attributes(Outlive) | {"app"}
    assert all(name in row("Handle", "app.handle") for name in parameters(Outlive.handle))


@pytest.mark.parametrize("of", [Happened, DidNotHappen, Unclear])
def test_answers_of_a_look_up_have_their_parameters(of: type) -> None:
    shown = row("What a look-up answers", of.__name__)
    assert re.findall(r"\b(\w+)(?==|,|\))", shown.replace('""', "")) == parameters(of)


def test_defaults_of_a_retry_are_those_of_the_code() -> None:
    assert [field.name for field in dataclasses.fields(Retry)] == parameters(Retry)
    assert re.findall(r"^\| `\w+` \| ([\w ]+) \|", SECTIONS["Retry"], re.M) == ["5", "1 s", "5 min"]
    assert (Retry().attempts, Retry().first.total_seconds(), Retry().most.total_seconds()) == (5, 1, 300)


def test_simple_defaults_are_those_of_the_code() -> None:
    for section, of in TABLES.items():
        assert callable(of)
        for name, parameter in inspect.signature(of).parameters.items():
            if isinstance(parameter.default, str) or type(parameter.default) is int:
                shown = str(parameter.default) if section == "Retry" else _written(parameter.default)
                assert f"| `{name}` | {shown} |" in SECTIONS[section], f"{section}: {name} = {shown}"


def _written(default: object) -> str:
    return f'`"{default}"`' if isinstance(default, str) else str(default)


def test_every_public_name_is_on_the_page() -> None:
    assert [name for name in outlive.__all__ if not re.search(rf"\b{name}\b", PAGE)] == []
    assert f"GuardedTransport({parameters(GuardedTransport)[0]}=None)" in PAGE
