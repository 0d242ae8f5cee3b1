"""Where the order of a set gets into something else, and where it does not."""

import pytest

from tests.lint.conftest import Lint, agent, codes

HELD = "tags = set(given.split())\n"

FOUND = [
    HELD + "other: list[str] = []\nfor one in tags:\n    other.append(one)\nreturn other",
    HELD + "other: set[int] = set()\nfor one in tags:\n    other.add(await run.step(len, one))\nreturn len(other)",
    HELD + "for one in tags:\n    if one:\n        return one",
    HELD + "text = ''\nfor one in tags:\n    text += one\nreturn text",
    HELD + "for one in tags:\n    await run.step(len, one)",
    HELD + "return [one for one in tags]",
    HELD + "return list(tags)",
    HELD + "return tuple(tags)",
    HELD + "return next(iter(tags))",
    HELD + "return ','.join(tags)",
    HELD + "return ','.join(one.upper() for one in tags)",
    HELD + "return [*tags]",
    HELD + "return max(*tags)",
    HELD + "first, *rest = tags\nreturn first",
    HELD + "return tags.pop()",
    HELD + "return f'{tags}'",
    HELD + "return str(tags)",
    HELD + "return list(enumerate(tags))",
    HELD + "return [one for one, two in zip(tags, given)]",
    HELD + "return list(map(str.upper, tags))",
    HELD + "found: list[str] = []\nfound.extend(tags)\nreturn found",
    HELD + "found = ['a']\nfound += tags\nreturn found",
    HELD + "import itertools\nreturn list(itertools.chain(tags, given))",
    HELD + "return await run.map(branch, tags, key=str)",
    HELD + "return [one for one in tags | {'x'}]",
    HELD + "return [one for one in tags - {'x'}]",
    HELD + "return [one for one in tags.union(given)]",
    HELD + "return [one for one in tags.copy()]",
    HELD + "return [one for one in {name: 1 for name in tags}]",
    HELD + "return list({name: 1 for name in tags}.items())",
    HELD + "return list(dict.fromkeys(tags))",
    HELD + "other = tags\nfor one in other:\n    return one",
    HELD + "if given:\n    tags = {'a', 'b'}\nfor one in tags:\n    return one",
    HELD + "tags |= {'x'}\nfor one in tags:\n    return one",
    HELD + "def inner() -> list[str]:\n    return list(tags)\nreturn inner()",
    HELD + "return sorted([list(tags)])",
    HELD + "return list(list(tags))",
    "return list({'a', 'b'})",
    "return list({one.upper() for one in given})",
    "return list(frozenset(given))",
    "return list(KINDS)",
    "return [one for one in KINDS if one]",
    "return list(frozen())",
    "return list(inferred(given))",
    "return list(await run.step(frozen))",
    "return list(await run.call(look))",
    "return list(Box({'a'}).names)",
    "return list(Shelf().names)",
    "return list(Box({'a'}).upper())",
    "return list(Box({'a'}).all)",
    "async for state in run.turns(State()):\n    return list(state.seen)",
    "return list(await run.receive('tags', Tags))",
    "by: dict[str, set[str]] = {}\nreturn list(by['a'])",
    "by: dict[str, set[str]] = {}\nfor name, tags in by.items():\n    for one in tags:\n        return one",
    "return list({'a': 1, 'b': 2}.keys() - {'a'})",
    "return list({'a': 1}.keys() & given)",
    "for one in {'a', 'b'} if given else {'c', 'd'}:\n    return one",
    "tags: set[str] = set()\ntags.add(given)\nreturn list(tags)",
    "return [two for one in [{'a', 'b'}] for two in one]",
    "if (tags := set(given)):\n    return list(tags)",
]

FINE = [
    HELD + "for one in tags:\n    assert one",
    HELD + "other: set[str] = set()\nfor one in tags:\n    if one != 'a':\n        other.add(one)\nreturn len(other)",
    HELD + "count = 0\nfor one in tags:\n    count += len(one)\nreturn count",
    HELD + "by = {'a': 1}\nfor one in tags:\n    del by[one]",
    HELD + "raise ValueError(f'{tags} is too much')",
    HELD + "return sorted(tags)",
    HELD + "return sorted(one.upper() for one in tags)",
    HELD + "return len(tags), min(tags), any(tags), given in tags",
    HELD + "return sum(len(one) for one in tags)",
    HELD + "return any([one == 'a' for one in tags])",
    HELD + "return {one.upper() for one in tags}",
    HELD + "return {one: 1 for one in tags}",
    HELD + "return {one: 1 for one in tags}['a']",
    HELD + "return set(tags) | {*tags}",
    HELD + "return tags.union(one.upper() for one in tags) == tags",
    HELD + "tags = sorted(tags)\nfor one in tags:\n    await run.step(len, one)",
    HELD + "tags = sorted(tags)\nfor one in given:\n    await run.step(len, tags[0])\nreturn list(tags)",
    HELD + "run.log.info('has %s', list(tags))",
    HELD + "print(f'{tags}')",
    HELD + "tags.add('x')\ntags.discard('y')\nreturn await run.step(len, tags)",
    HELD + "for one in sorted(tags):\n    await run.step(len, one)",
    "return list({1, 2, 3})",
    "return list(NUMBERS)",
    "ids: set[int] = set()\nids.add(1)\nreturn list(ids)",
    "return list({1} | {2})",
    "return takes({'a'})",
    HELD + "return sorted(list(tags))",
    HELD + "return len(list(map(str.upper, filter(None, tags))))",
    HELD + "return sorted(map(str.upper, [one for one in tags]))",
    "return [one for one in given]",
    "return list({'a': 1})",
    "return list({'a': 1}.keys())",
    "return list({'a': 1} | {'b': 2})",
    "return list(Ordered())",
    "set = list\nreturn list(set(given))",
    "return list(either())",
    "return list(ONE)",
    "return [1, 2].pop(), {'a': 1}.popitem()",
    "from collections import Counter\nreturn Counter(given).most_common()",
    "for one in [1]:\n    tags = {'a'}\n    tags = list(sorted(tags))\n    for two in tags:\n        return two",
]

BEFORE = """
from collections.abc import Iterator
from dataclasses import dataclass
from pydantic import BaseModel, RootModel

KINDS = frozenset({"a", "b"})
NUMBERS = {1, 2}
ONE = {"a"}


class State(BaseModel):
    seen: set[str] = set()


Tags = set[str]


@dataclass
class Box:
    names: set[str]

    def upper(self) -> set[str]:
        return {one.upper() for one in self.names}

    @property
    def all(self) -> frozenset[str]:
        return frozenset(self.names)


class Shelf:
    def __init__(self) -> None:
        self.names = {"a", "b"}


class Ordered(set[str]):
    def __iter__(self) -> Iterator[str]:
        return iter(sorted(set(self)))


def frozen() -> frozenset[str]:
    return frozenset({"a"})


def inferred(text):
    return set(text.split())


def takes(tags: set[str]) -> list[str]:
    return sorted(tags)


def either() -> set[str] | list[str]:
    return ["a"]


async def branch(one: str) -> str:
    return one


@app.tool(effect="read")
def look(op: Operation[None]) -> set[str]:
    return {"a"}
"""


@pytest.mark.parametrize("body", FOUND)
def test_an_order_that_differs_is_found_once(lint: Lint, body: str) -> None:
    assert codes(lint(agent(body, BEFORE))) == ["set-order"]


@pytest.mark.parametrize("body", FINE)
def test_what_has_an_order_or_needs_none_is_not(lint: Lint, body: str) -> None:
    assert codes(lint(agent(body, BEFORE))) == []
