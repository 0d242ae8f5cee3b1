"""An agent of pydantic-ai: it looks something up, pays when somebody agrees, notes it, and reports."""

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlive import Operation, Outlive
from outlive.approvals import Approval
from outlive.pydantic_ai import agent, toolset

app: Outlive[None] = Outlive()
OUTCOMES = {"pay": '"paid"', "writer.note": '{"kind": "returned", "content": "noted"}'}
SAID: list[tuple[str, dict[str, object]]] = [("look", {"what": "a"}), ("pay", {"cents": 7}), ("note", {"text": "b"})]


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


async def note(text: str) -> str:
    """Note something down."""
    return f"noted {text}"


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """One call after the other, then a text."""
    number = sum(isinstance(one, ModelResponse) for one in messages)
    if number < len(SAID):
        name, arguments = SAID[number]
        return ModelResponse(parts=[ToolCallPart(name, arguments, f"{name}-{number}")])
    if info.output_tools:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"said": "all"}, "report")])
    return ModelResponse(parts=[TextPart("all is done")])


writer = Agent(
    FunctionModel(answer, model_name="small"), name="writer", output_type=str, instructions="Be brief.",
    toolsets=[toolset(look, pay)], tools=[note],
)  # fmt: skip
writes = agent(app, writer, effects={"note": "idempotent"})
