"""A server of a small model in a process of its own, as the SDK of OpenAI expects one: `python -m tests.small.serving`.

It outlives the workers that ask it. What it was asked, and how many tokens it has counted, is in a file of its own.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import xllamacpp

from tests.small.points import POINTS, passed
from tests.small.weights import weights

Json = dict[str, Any]


@dataclass(frozen=True)
class Counted:
    """One request, as the server has it. `id` is in the answer too."""

    turn: int
    id: str
    input_tokens: int
    output_tokens: int


def counted(directory: Path) -> list[Counted]:
    """What the server has counted, in the order in which it was done."""
    file = directory / "counted.jsonl"
    return [Counted(**json.loads(line)) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def loaded() -> Any:
    """The model. One thread that does not spin: it shares the machine with other tests."""
    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 2048, 1, False, 0
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads, cpu.poll = 1, 0
    # It has a server of its own, which nobody uses here: on this machine alone, with a key that nobody knows.
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [os.urandom(16).hex()]
    return xllamacpp.Server(params)


@dataclass
class Generation:
    """One answer while it is generated. A test can have it stand still behind the first token."""

    turn: int
    text: str = ""
    last: Json = field(default_factory=dict)
    usage: Json = field(default_factory=dict)
    finish: str = ""

    def take(self, chunk: Json) -> bool:
        """One piece of it; a true answer would end the generation."""
        if "error" in chunk or "code" in chunk:
            raise RuntimeError(f"the model server says {chunk}")
        self.last, self.usage = chunk, chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            piece = choice["delta"].get("content") or ""
            if piece and not self.text:
                passed(f"generating-{self.turn}")
            self.text += piece
            self.finish = choice["finish_reason"] or self.finish
        return False

    def answer(self) -> Json:
        """As OpenAI words it."""
        message = {"role": "assistant", "content": self.text}
        return {
            "id": self.last["id"], "object": "chat.completion", "created": self.last["created"], "model": "smollm2",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish}], "usage": self.usage,
        }  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """One request to the model."""

    model: Any
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        one = Generation(turn=1 + sum(said["role"] == "assistant" for said in request["messages"]))
        # The same computation whatever was asked before: a prompt that is known in part is computed in other batches.
        asked = {**request, "stream": True, "stream_options": {"include_usage": True}, "cache_prompt": False}
        self.model.handle_chat_completions(asked, one.take)
        row = (one.turn, one.last["id"], one.usage["prompt_tokens"], one.usage["completion_tokens"])
        with (Path(os.environ[POINTS]) / "counted.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(vars(Counted(*row))) + "\n")
        self._send(json.dumps(one.answer()).encode())

    def _send(self, body: bytes) -> None:
        try:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the file says it."""


if __name__ == "__main__":
    Handler.model = loaded()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while sys.stdin.readline():
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
    # Whoever has started it is gone. The model's own threads are not waited for.
    os._exit(0)
