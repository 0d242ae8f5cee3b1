"""The examples with a real model's SDK: `--model` reaches the workers, and a provider on a local port is asked."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pydantic_ai.provider import provider

ROOT = Path(__file__).parents[2]

REPORTS: dict[str, tuple[dict[str, Any], str]] = {
    "research": ({"title": "On nothing", "findings": ["nothing"]}, "On nothing"),
    "clerk": ({"booked": [], "not_booked": ["NL-2041"]}, "not booked: NL-2041"),
    "maintainer": ({"fixed": [], "left": ["F1"]}, "left=['F1']"),
}


async def played(name: str, url: str, **environment: str) -> tuple[int | None, str]:
    """Exit code and output of a demo."""
    told = {key: value for key, value in os.environ.items() if key != "ANTHROPIC_API_KEY"} | environment
    out = asyncio.subprocess.PIPE
    one = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"examples.{name}.demo", "--kills", "0", "--model", "anthropic:claude-opus-5",
        cwd=ROOT, env={**told, "ANTHROPIC_BASE_URL": url}, stdout=out, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(one.communicate(), 120)
    return one.returncode, said.decode()


@pytest.mark.parametrize("name", REPORTS)
async def test_a_real_model_is_asked(name: str) -> None:
    report, shown = REPORTS[name]
    async with provider(lambda messages: {"final_result": report}) as them:
        _, said = await played(name, them.url, ANTHROPIC_API_KEY="none")
    assert shown in said, said
    (asked,) = them.asked
    assert asked["model"] == "claude-opus-5"
    assert asked["tools"]


async def test_who_has_no_key_is_told() -> None:
    async with provider(lambda messages: "nobody asks") as them:
        code, said = await played("research", them.url)
    assert (code, them.asked) == (2, [])
    assert "ANTHROPIC_API_KEY" in said
    assert "Traceback" not in said
