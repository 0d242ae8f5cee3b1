"""Agents of frameworks, whose logs have to replay too: by turns, in one window, begun by one and ended by another."""

from __future__ import annotations

from typing import Any

from outlive import Agent, Outlive
from outlive import openai_agents as sdk
from outlive import pydantic_ai as pydantic
from tests.openai_agents import desk, test_runner
from tests.openai_agents.swap import changing
from tests.pydantic_ai import clerk
from tests.sweep.corpus import Bank

_OTHER = {0: "pydantic", 1: "sdk"}


def of_frameworks() -> tuple[dict[str, Any], list[Agent[str, Any]]]:
    """Their tools, and they."""
    apps: list[Outlive[Bank]] = [Outlive(), Outlive()]
    swapped, handed_over, _ = changing(lambda times: _OTHER[times % 2])
    agents: list[Agent[str, Any]] = [
        sdk.agent(apps[0], desk.clerk, name="of_sdk", effects={"shy": "read"}),
        pydantic.agent(apps[1], clerk.clerk, name="of_pydantic", effects={"shy": "read"}),
        test_runner.talk, handed_over,
    ]  # fmt: skip
    tools: dict[str, Any] = {}
    for one in (*apps, desk.app, clerk.app, test_runner.app, swapped):
        tools |= one.registry.tools
    return tools, agents
