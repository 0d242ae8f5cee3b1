"""HTTP in front of the runs. What it says is read from the log, so that it may be restarted, or there several times."""

import argparse
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import Body, FastAPI, Header, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ValidationError

from examples.web.agent import Order, Verdict, report
from examples.web.app import app
from examples.web.press import Told, genuine, printing
from outlive import DidNotHappen, Handle, Happened
from outlive.errors import OutliveError, RunExists, StoreError, TooEarly, UnknownOperation, UnknownRun
from outlive.events import Event


class Answer(BaseModel):
    """A person's answer to a question; `question` is the `id` that came with it."""

    question: str
    verdict: Verdict


@asynccontextmanager
async def running(_: FastAPI) -> AsyncIterator[None]:
    """The store is open, and this process is a worker too."""
    async with app, app.worker():
        yield


api = FastAPI(title="Reports", lifespan=running)


@api.get("/")
async def page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("page.html"))


@api.put("/reports/{id}", status_code=202)
async def start(id: str, order: Order) -> dict[str, str]:
    """The same request twice starts one run."""
    handle = await app.start(report, order, id=id)
    return {"id": handle.id, "status": await handle.status()}


@api.get("/reports/{id}")
async def status(id: str) -> dict[str, str]:
    return {"id": id, "status": await app.handle(report, id).status()}


@api.get("/reports/{id}/events")
async def events(id: str, last_event_id: Annotated[str | None, Header()] = None) -> StreamingResponse:
    """Server-sent events. A browser that reconnects says the last id that it has seen: that is the cursor."""
    handle = app.handle(report, id)
    await handle.status()
    stream = _lines(handle, last_event_id or None)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@api.post("/reports/{id}/answers", status_code=204)
async def answer(id: str, said: Answer) -> None:
    await app.handle(report, id).answer(said.question, said.verdict, who=said.verdict.who)


@api.put("/prints/{id}", status_code=202)
async def order(id: str, text: Annotated[str, Body(embed=True)]) -> dict[str, str]:
    """Have a text printed; what becomes of it the press tells."""
    handle = await app.start(printing, text, id=id)
    return {"id": handle.id, "status": await handle.status()}


@api.get("/prints/{id}")
async def printed(id: str) -> dict[str, str]:
    handle = app.handle(printing, id)
    status = await handle.status()
    return {"id": id, "status": status, "result": await handle.result() if status == "succeeded" else ""}


@api.post("/press", status_code=204)
async def press(request: Request) -> Response:
    """The webhook of the press. What it tells is stored when this answers, and may be told again."""
    body = await request.body()
    if not genuine(request.headers, body):
        return JSONResponse({"error": "the signature is not good"}, status_code=403)
    try:
        told = Told.model_validate_json(body)
    except ValidationError as error:
        return JSONResponse({"error": str(error)}, status_code=422)
    outcome = DidNotHappen() if told.printed is None else Happened(told.printed)
    await app.complete(told.order, outcome, key=told.event)
    return Response(status_code=204)


@api.exception_handler(OutliveError)
async def refused(_: Request, error: Exception) -> Response:
    code = 404 if isinstance(error, UnknownRun | UnknownOperation) else 409 if isinstance(error, RunExists) else 400
    # What only failed now is tried again by its sender, where it gives up what is wrong.
    code = 503 if isinstance(error, StoreError | TooEarly) else code
    return JSONResponse({"error": str(error)}, status_code=code)


def _lines(handle: Handle[str], after: str | None) -> AsyncIterator[str]:
    followed = handle.events(after=after, deltas=True)

    async def lines() -> AsyncIterator[str]:
        async with aclosing(followed):
            async for event in followed:
                yield _frame(event)

    return lines()


def _frame(event: Event) -> str:
    if event.attempt is not None:
        # No id: a browser that reconnects goes on where the log was, as if it had never seen this.
        call = f"{event.attempt.call} {event.attempt.epoch}.{event.attempt.number}"
        return f"event: delta\ndata: {json.dumps({**event.data, 'of': call})}\n\n"
    return f"id: {event.cursor}\nevent: {event.name}\ndata: {json.dumps(event.data)}\n\n"


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Serve the reports on this machine.")
    options.add_argument("--port", type=int, default=8000, help="0: one that is free")
    # Who follows a run stays connected; a server that is told to stop does not wait for him.
    uvicorn.run(api, host="127.0.0.1", port=options.parse_args().port, timeout_graceful_shutdown=2)
