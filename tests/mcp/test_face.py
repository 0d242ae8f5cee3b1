"""Agents of every shape of input and result as tools."""

from dataclasses import dataclass
from datetime import date

import pytest
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from outlive import Outlive, Run
from outlive.mcp import Access, make_server
from outlive.mcp.face import Face
from outlive.mcp.server import CANCEL, STATUS
from outlive.model.errors import BadArguments, Refused

app: Outlive[None] = Outlive()


class Node(BaseModel):
    name: str
    under: list["Node"] = []


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    of: int = Field(alias="from")


@dataclass
class Point:
    x: int
    on: date


@app.agent()
async def grows(run: Run[None], node: Node) -> Node:
    """Grows a tree.

    By one.
    """
    return node


@app.agent()
async def points(run: Run[None], points: list[Point]) -> dict[str, Point]:
    return {}


@app.agent()
async def aliased(run: Run[None], given: Aliased) -> Aliased:
    return given


@app.agent()
async def nothing(run: Run[None], input: None) -> None: ...


@app.agent()
async def data(run: Run[None], given: JsonValue) -> bytes:
    return b""


@app.agent()
async def either(run: Run[None], given: Point | Node) -> Point | None:
    return None


@app.agent(name="two words")
async def two_words(run: Run[None], input: str) -> str:
    return input


def face(name: str) -> Face:
    return Face.of(app.registry.agent(name))


def test_the_docstring_is_the_description() -> None:
    assert face("grows").description == "Grows a tree.\n\nBy one."
    assert face("points").description == "Starts a run of the agent points."


def test_an_object_is_the_arguments_themselves() -> None:
    tree = face("grows")
    assert tree.input_schema["type"] == "object" and tree.input_schema["required"] == ["name"]
    given = tree.read({"name": "a", "under": [{"name": "b"}]})
    assert given == Node(name="a", under=[Node(name="b")])
    assert tree.write('{"name":"a","under":[]}')[1] == {"name": "a", "under": []}
    assert face("aliased").read({"of": 1}) == Aliased.model_validate({"of": 1})
    assert face("aliased").write('{"of":1}')[1] == {"of": 1}
    assert face("aliased").input_schema["required"] == ["of"]


def test_what_is_no_object_is_the_only_member_of_one() -> None:
    listed = face("points")
    assert listed.input_schema["required"] == ["input"]
    assert listed.input_schema["$defs"]
    assert listed.read({"input": [{"x": 1, "on": "2026-01-02"}]}) == [Point(1, date(2026, 1, 2))]
    assert face("either").read({"input": {"x": 1, "on": "2026-01-02"}}) == Point(1, date(2026, 1, 2))
    assert face("either").write("null") == ("null", {"result": None})
    assert face("data").read({"input": {"a": [1, None]}}) == {"a": [1, None]}
    assert face("data").write('"/w=="')[1] == {"result": "/w=="}  # bytes that are no text


def test_no_input_is_no_argument() -> None:
    assert face("nothing").input_schema["properties"] == {"input": {"type": "null"}}
    assert "required" not in face("nothing").input_schema
    assert face("nothing").read({}) is None


@pytest.mark.parametrize(
    ("name", "given"),
    [("points", {"input": [{"x": "a", "on": 1}]}), ("points", {}), ("points", {"points": []}), ("nothing", {"a": 1}),
     ("data", {"input": float("nan")}), ("grows", {})],
)  # fmt: skip
def test_what_does_not_fit_is_refused(name: str, given: dict[str, object]) -> None:
    with pytest.raises(BadArguments):
        face(name).read(given)


def test_a_name_that_is_none_of_a_tool_is_refused() -> None:
    with pytest.raises(Refused, match="two words"):
        face("two words")


@pytest.mark.parametrize("name", [STATUS, CANCEL])
def test_an_agent_that_would_be_hidden_by_a_tool_of_the_server_is_refused(name: str) -> None:
    other: Outlive[None] = Outlive()
    other.agent(name=name)(points.fn)
    with pytest.raises(Refused, match="of the server itself"):
        make_server(other, Access(who="ada"))
