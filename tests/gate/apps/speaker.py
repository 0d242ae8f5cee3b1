"""An agent of the OpenAI Agents SDK: it looks something up, pays when somebody agrees, notes it, and reports."""

from agents import Agent, function_tool
from pydantic import BaseModel

from outlive import Operation, Outlive
from outlive.approvals import Approval
from outlive.openai_agents import agent, toolset
from tests.openai_agents.talking import Items, Said, Talking, call, turns

app: Outlive[None] = Outlive()
OUTCOMES = {"pay": '"paid"'}
SAID = [call("look", what="a"), call("pay", cents=7), call("note", text="b")]
LAST = "all is done"


class Report(BaseModel):
    said: str


@app.tool(effect="read")
async def look(op: Operation[None], what: str) -> str:
    """See something."""
    return f"saw {what}"


@app.tool(effect="read")
async def listen(op: Operation[None], what: str) -> str:
    """Hear something."""
    return f"heard {what}"


@app.tool(approval=Approval(role="finance"))
async def pay(op: Operation[None], cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@function_tool
async def note(text: str) -> str:
    """Note something down."""
    return f"noted {text}"


def answer(items: Items) -> Said:
    """One call after the other, then a text."""
    number = turns(items)
    return [SAID[number]] if number < len(SAID) else LAST


class Small(Talking):
    """A model with a name of its own."""

    model = "small"


speaker = Agent[None](
    name="speaker", model=Small(answer), instructions="Be brief.", tools=[*toolset(look, pay), note]
)  # fmt: skip
speaks = agent(app, speaker, effects={"note": "idempotent"})
