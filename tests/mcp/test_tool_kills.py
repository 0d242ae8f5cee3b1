"""A worker is killed amid a call of an MCP tool: what may be repeated is, and for the rest a person is asked."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.waiting import Place
from tests.mcp.conftest import on
from tests.mcp.waiting import Desk, until

pytestmark = pytest.mark.deaths


@pytest.fixture(params=["stdio sqlite", "http postgres"])
def desk(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Desk:
    transport, kind = request.param.split()
    on(request, place, kind)
    made = Desk(tmp_path / "desk", http=transport == "http")
    place.env |= {"OUTLIVE_APP": "tests.mcp.caller:app", "DESK": str(made.place), "DESK_URL": made.url}
    request.addfinalizer(made.end)
    return made


async def killed(place: Place, desk: Desk, asked: object, agent: str = "calls") -> None:
    """A worker is killed when the first call has acted and has no answer yet; another one takes over."""
    (desk.place / "wait").touch()
    worker = place.outlive("worker")
    code, said = place.done("start", agent, json.dumps(asked), "--id", "r")
    assert code == 0, said
    await until(desk.acted)
    worker.send(signal.SIGKILL)
    worker.code()
    (desk.place / "wait").unlink()
    place.outlive("worker")


def shown(place: Place) -> dict[str, Any]:
    code, said = place.done("show", "r", "--json")
    assert code == 0, said
    found: dict[str, Any] = json.loads("".join(said))
    return found


async def stands(place: Place, status: str) -> dict[str, Any]:
    async def found() -> dict[str, Any] | None:
        run = shown(place)
        return run if run["run"]["status"] == status else None

    return await until(found)


async def test_an_external_call_is_not_repeated_and_a_person_says_what_became_of_it(place: Place, desk: Desk) -> None:
    await killed(place, desk, [["refund", {"invoice": "I", "cents": 5}], ["search", {"query": "x"}]])

    run = await stands(place, "blocked")
    assert desk.acts() == ["refund I 5"]
    [operation] = [one for one in run["operations"] if one["tool"] == "desk.refund"]
    assert (operation["effect"], operation["status"]) == ("external", "unknown")
    answer = json.dumps({"content": [{"type": "text", "text": "refunded"}], "structured": None})
    code, said = place.done("resolve", "r", operation["id"], "happened", "--why", "in the books", "--outcome", answer)
    assert code == 0, said
    run = await stands(place, "succeeded")
    assert run["result"][0] == "refunded"
    assert desk.acts() == ["refund I 5", "search x"]


async def test_a_read_call_is_made_again(place: Place, desk: Desk) -> None:
    await killed(place, desk, [["search", {"query": "x"}]])
    await stands(place, "succeeded")
    assert desk.acts() == ["search x", "search x"]


async def test_nor_is_one_of_an_agent_of_pydantic_ai(place: Place, desk: Desk) -> None:
    place.env["OUTLIVE_APP"] = "tests.pydantic_ai.desk:app"
    turns = json.dumps([[["refund", {"invoice": "I", "cents": 5}]], [["search", {"query": "x"}]]])
    await killed(place, desk, turns, "clerk")
    run = await stands(place, "blocked")
    assert desk.acts() == ["refund I 5"]
    [operation] = [one for one in run["operations"] if one["tool"] == "clerk.refund"]
    assert (operation["effect"], operation["status"]) == ("external", "unknown")
    code, said = place.done("resolve", "r", operation["id"], "happened", "--why", "in the books", "--outcome", '"done"')
    assert code == 0, said
    run = await stands(place, "succeeded")
    assert run["result"].startswith("ToolReturnPart: done")
    assert desk.acts() == ["refund I 5", "search x"]
