"""A provider of models on a local port: it speaks what the SDKs of OpenAI and Anthropic speak, and fails as told.

It answers with tool calls as its script says, and counts what it was asked and what it has charged for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

Reply = dict[str, Any]

INPUT, OUTPUT = 11, 7
"""Tokens that each answer is said to have cost."""


@dataclass
class Fault:
    """What happens to a request instead: an answer with this status, none after it was worked on (`drop`), or only the
    first half of one that was (`stall`): the rest comes when `Provider.more` is set.
    """

    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: Reply = field(default_factory=lambda: {"error": {"message": "not now", "type": "error"}})
    drop: bool = False
    stall: bool = False


ok = Fault(200)
"""Nothing of the kind."""


@dataclass
class Provider:
    """`script` says what is answered, from the messages of the request: a text, or tool calls by name."""

    script: Callable[[list[Reply]], str | dict[str, Reply]]
    faults: list[Fault] = field(default_factory=list)
    asked: list[Reply] = field(default_factory=list)
    charged: int = 0
    more: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) is not None:
                request = await reader.readexactly(_length(head))
                if not await self._answer(head, json.loads(request), writer):
                    return
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()

    async def _answer(self, head: bytes, request: Reply, writer: asyncio.StreamWriter) -> bool:
        self.asked.append(request)
        told = self.faults.pop(0) if self.faults else ok
        fault = None if told is ok else told
        if fault is None or fault.drop or fault.stall:
            self.charged += 1
        if fault is not None and fault.drop:
            return False
        if fault is not None and not fault.stall:
            await _send(writer, fault.status, json.dumps(fault.body), fault.headers)
            return True
        said = self.script(request["input" if "input" in request else "messages"])
        first = head.split(b"\r\n")[0]
        anthropic, responses = b"/messages" in first, b"/responses" in first
        more = self.more if fault is not None else None
        if request.get("stream"):
            streamed = _anthropic_stream(said, request) if anthropic else _stream(said, request)
            await _send(writer, 200, streamed, {"content-type": "text/event-stream"}, more)
        else:
            make = _of_anthropic if anthropic else _of_responses if responses else _of_openai
            whole = make(said, request)
            await _send(writer, 200, json.dumps(whole), {}, more)
        return True


def _length(head: bytes) -> int:
    lines = [line.split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line]
    return int(next((value for name, value in lines if name.strip().lower() == b"content-length"), b"0"))


async def _send(
    writer: asyncio.StreamWriter, status: int, body: str, headers: dict[str, str], more: asyncio.Event | None = None
) -> None:  # fmt: skip
    given = {"content-type": "application/json", **headers, "content-length": str(len(body.encode()))}
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in given.items()), "", body]
    whole = "\r\n".join(lines).encode()
    half = len(whole) - len(body.encode()) // 2
    writer.write(whole if more is None else whole[:half])
    await writer.drain()
    if more is not None:
        await more.wait()
        writer.write(whole[half:])
        await writer.drain()


def _of_openai(said: str | dict[str, Reply], request: Reply) -> Reply:
    message: Reply = {"role": "assistant", "content": said if isinstance(said, str) else None}
    if not isinstance(said, str):
        message["tool_calls"] = [
            {"id": f"{name}-{len(request['messages'])}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments in said.items()
        ]  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": "stop" if isinstance(said, str) else "tool_calls"}
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    return {
        "id": "c-1", "object": "chat.completion", "created": 1_700_000_000, "model": request["model"],
        "choices": [choice], "usage": usage,
    }  # fmt: skip


def _of_responses(said: str | dict[str, Reply], request: Reply) -> Reply:
    text: Reply = {"type": "output_text", "text": said, "annotations": []}
    output: list[Reply] = [
        {"type": "message", "id": "m-1", "role": "assistant", "status": "completed", "content": [text]}
    ]
    if not isinstance(said, str):
        output = [
            {"type": "function_call", "id": f"f-{name}", "call_id": f"{name}-{len(request['input'])}", "name": name,
             "arguments": json.dumps(arguments), "status": "completed"}
            for name, arguments in said.items()
        ]  # fmt: skip
    usage = {
        "input_tokens": INPUT, "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {
        "id": "r-1", "object": "response", "created_at": 1_700_000_000, "model": request["model"], "output": output,
        "usage": usage, "status": "completed", "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def _of_anthropic(said: str | dict[str, Reply], request: Reply) -> Reply:
    content = [{"type": "text", "text": said}] if isinstance(said, str) else [
        {"type": "tool_use", "id": f"{name}-{len(request['messages'])}", "name": name, "input": arguments}
        for name, arguments in said.items()
    ]  # fmt: skip
    return {
        "id": "m-1", "type": "message", "role": "assistant", "model": request["model"], "content": content,
        "stop_reason": "end_turn" if isinstance(said, str) else "tool_use", "stop_sequence": None,
        "usage": {"input_tokens": INPUT, "output_tokens": OUTPUT},
    }  # fmt: skip


def _stream(said: str | dict[str, Reply], request: Reply) -> str:
    """Of OpenAI: a text, word by word."""
    assert isinstance(said, str)
    base = {"id": "c-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": request["model"]}
    words = [{"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None} for word in said.split()]
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    chunks = [*({**base, "choices": [one]} for one in (*words, last)), {**base, "choices": [], "usage": usage}]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def _anthropic_stream(said: str | dict[str, Reply], request: Reply) -> str:
    whole = _of_anthropic(said, request)
    events: list[Reply] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for index, block in enumerate(whole["content"]):
        empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
        delta = (
            {"type": "text_delta", "text": block["text"]}
            if block["type"] == "text"
            else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        )
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events += [{"type": "message_delta", "delta": ended, "usage": {"output_tokens": OUTPUT}}, {"type": "message_stop"}]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)


@asynccontextmanager
async def provider(script: Callable[[list[Reply]], str | dict[str, Reply]]) -> AsyncIterator[Provider]:
    """A provider that listens while the block lasts. Clients that are made meanwhile are closed after it: nobody else
    would, and their sockets would be found unclosed in some other test.
    """
    made: list[httpx2.AsyncClient] = []
    begin = httpx2.AsyncClient.__init__

    def noted(client: httpx2.AsyncClient, *args: Any, **options: Any) -> None:
        made.append(client)
        begin(client, *args, **options)

    one = Provider(script)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx2.AsyncClient, "__init__", noted)
        async with server:
            yield one
            for client in made:
                await client.aclose()
