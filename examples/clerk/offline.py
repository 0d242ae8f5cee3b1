"""A model that needs no network: what it answers follows from the conversation alone. It reads as a program does, and
makes one mistake: it books to an account that there is not, is told so, and corrects itself.
"""

from __future__ import annotations

import re

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

_WORDS = {"lathe, second": "machines", "servers": "services", "directory": "services", "carriage": "transport"}


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """List, read, book, book again what was a mistake, report."""
    if not (listed := _returned(messages, "list_invoices")):
        return _say(ToolCallPart("list_invoices", {}, "list"))
    if not (read := _returned(messages, "read_invoice")):
        files = [str(one) for one in listed[0].content] if isinstance(listed[0].content, list) else []
        return _say(*(ToolCallPart("read_invoice", {"file": one}, f"read-{one}") for one in files))
    answers = {one.tool_call_id: one for one in _returned(messages, "book")}
    mistakes = {call for call, said in answers.items() if said.outcome == "retried"}
    wanted = {one.tool_call_id.replace("read", "book", 1): _booking(str(one.content)) for one in read}
    wanted |= {f"{call}-again": wanted[call] | {"account": "office"} for call in wanted if call in mistakes}
    if calls := [ToolCallPart("book", wanted[call], call) for call in wanted if call not in answers]:
        return _say(*calls)
    done = {str(wanted[call]["invoice"]): said.outcome == "success" for call, said in answers.items()}
    report = {"booked": [one for one in done if done[one]], "not_booked": [one for one in done if not done[one]]}
    return _say(ToolCallPart(info.output_tools[0].name, report, "report"))


def _booking(text: str) -> dict[str, object]:
    """What is to be booked for an invoice."""
    number = re.search(r"Invoice ([\w-]+)", text)
    cents = re.findall(r"[\d,]+\.\d\d", text)[-1].replace(",", "").replace(".", "")
    account = next((account for word, account in _WORDS.items() if word in text.lower()), "stationery")
    vendor = text.splitlines()[0]
    return {"invoice": number[1] if number else "", "vendor": vendor, "cents": int(cents), "account": account}


def _returned(messages: list[ModelMessage], tool: str) -> list[ToolReturnPart]:
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    return [one for one in parts if isinstance(one, ToolReturnPart) and one.tool_name == tool]


def _say(*calls: ToolCallPart) -> ModelResponse:
    return ModelResponse(parts=list(calls), model_name="offline")


CLERK = FunctionModel(answer, model_name="offline")
