"""The application: the corpus, how it is searched, and the agent. Constructing it does no I/O."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model

from examples.research.offline import PLANNER, WRITER
from outlive import Operation, Outlive
from outlive.pydantic_ai import agent, toolset

CORPUS = Path(__file__).parent / "corpus"

app: Outlive[None] = Outlive()


class Report(BaseModel):
    """What the agent gives."""

    title: str
    findings: list[str]


@app.tool(effect="read")
def search(op: Operation[None], word: str) -> list[str]:
    """Find documents that have a word in them.

    Args:
        word: one word, in any case
    """
    return sorted(one.stem for one in CORPUS.glob("*.md") if word.lower() in one.read_text("utf-8").lower())


@app.tool(effect="read")
def read(op: Operation[None], document: str) -> str:
    """Read a document of the corpus."""
    known = {one.stem: one for one in CORPUS.glob("*.md")}
    return known[document].read_text("utf-8") if document in known else f"there is no document {document}"


def role(messages: Sequence[ModelMessage]) -> str:
    """The first two turns are planned, by the dearer model; the rest is work."""
    return "plan" if sum(isinstance(one, ModelResponse) for one in messages) < 2 else "work"


def models() -> dict[str, Model | str]:
    """By role: scripted ones that need no network, or the real ones that RESEARCH_MODEL names."""
    named = os.environ.get("RESEARCH_MODEL")
    return {"plan": named, "work": named} if named else {"plan": PLANNER, "work": WRITER}


researcher = Agent[None, Report](
    models()["work"], name="researcher", output_type=Report, toolsets=[toolset(search, read)], defer_model_check=True,
    instructions="Search the corpus, read what you find, and report what it says. Report nothing that it does not say.",
)  # fmt: skip

research = agent(app, researcher, models=models(), choose=role)
