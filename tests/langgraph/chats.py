"""Graphs that the tests run: a chat whose messages only grow, and one whose whole list is written at every turn."""

from __future__ import annotations

import base64
import hashlib
import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


class Chat(TypedDict):
    """What was said."""

    messages: Annotated[list[BaseMessage], add_messages]


class Notes(TypedDict):
    """What was noted; a plain list, which its node writes whole."""

    notes: list[str]
    turns: Annotated[int, operator.add]


def said(number: int, size: int) -> str:
    """Text that no compression makes much shorter, and that is said once."""
    digest = hashlib.shake_256(number.to_bytes(8, "big")).digest(3 * size // 4)
    return base64.b64encode(digest).decode()


def chat(saver: BaseCheckpointSaver[str], size: int) -> Any:
    def answer(state: Chat) -> dict[str, list[BaseMessage]]:
        number = len(state["messages"])
        return {"messages": [AIMessage(said(number, size), id=f"answer-{number}")]}

    built = StateGraph(Chat)
    built.add_node("answer", answer)
    built.add_edge(START, "answer")
    built.add_edge("answer", END)
    return built.compile(checkpointer=saver)


def asked(number: int, size: int) -> dict[str, list[BaseMessage]]:
    return {"messages": [HumanMessage(said(number, size), id=f"question-{number}")]}


def loop(saver: BaseCheckpointSaver[str], turns: int, size: int) -> Any:
    """One invocation of many supersteps, each of which appends one message."""

    def talk(state: Chat) -> dict[str, list[BaseMessage]]:
        number = len(state.get("messages", ()))
        return {"messages": [AIMessage(said(number, size), id=f"turn-{number}")]}

    def again(state: Chat) -> str:
        return "talk" if len(state["messages"]) < turns else END

    built = StateGraph(Chat)
    built.add_node("talk", talk)
    built.add_edge(START, "talk")
    built.add_conditional_edges("talk", again, ["talk", END])
    return built.compile(checkpointer=saver)


def notes(saver: BaseCheckpointSaver[str], turns: int, size: int) -> Any:
    def note(state: Notes) -> dict[str, object]:
        return {"notes": [*state["notes"], said(len(state["notes"]), size)], "turns": 1}

    def again(state: Notes) -> str:
        return "note" if state["turns"] < turns else END

    built = StateGraph(Notes)
    built.add_node("note", note)
    built.add_edge(START, "note")
    built.add_conditional_edges("note", again, ["note", END])
    return built.compile(checkpointer=saver)
