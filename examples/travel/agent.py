"""The agent: books a trip with three providers. Where it comes to nothing, what was booked is undone, newest first."""

from datetime import timedelta
from typing import Literal

import httpx
from pydantic import BaseModel

from examples.travel.app import Deps, app
from outlive import DidNotHappen, Happened, NotSent, Operation, Retry, Run, Unclear

SOON = timedelta(milliseconds=200)
TIMEOUT = timedelta(seconds=2)
# A refusal is an answer: asking a second time is enough, the rest is for people.
TWICE = Retry(attempts=2, first=timedelta(milliseconds=100))


class Trip(BaseModel):
    """What somebody wants to book. Without a visa it comes to nothing, when all is booked and paid."""

    id: str
    hotel_cents: int
    flight_cents: int
    fare: Literal["flexible", "basic"]
    visa: bool


class Booked(BaseModel):
    """The numbers that the providers gave."""

    hotel: str
    flight: str
    card: str


class NoVisa(Exception):
    """Somebody may not enter the country: the trip comes to nothing."""


async def order(op: Operation[Deps], provider: httpx.AsyncClient, trip: str, what: str, cents: int) -> str:
    body = {"trip": trip, "what": what, "cents": str(cents)}
    answer = await provider.post("/orders", json=body, headers={"Idempotency-Key": op.key})
    return str(answer.raise_for_status().json()["number"])


async def undo(op: Operation[Deps], provider: httpx.AsyncClient) -> str | None:
    """The number of what undoes it; None where that is accepted, and done later.

    A refusal is no doubt: nothing was undone.
    """
    body = {"number": op.original.outcome, "operation": op.id}
    answer = await provider.post("/undo", json=body, headers={"Idempotency-Key": op.key})
    if answer.status_code == 409:
        raise NotSent(f"refused: {answer.json()['error']}")
    done = answer.raise_for_status().json()
    return None if answer.status_code == 202 else str(done["number"])


async def found(op: Operation[Deps], provider: httpx.AsyncClient) -> str | None:
    """The number under which the provider has this, if it has."""
    answer = await provider.get("/orders", params={"key": op.key})
    return None if answer.status_code == 404 else str(answer.raise_for_status().json()["number"])


# ---- the hotel: it can be asked afterwards, knows a cancellation by its key, and takes its time for it


@app.tool(effect="idempotent", timeout=TIMEOUT, settle_after=SOON, retry=TWICE)
async def cancel_hotel(op: Operation[Deps]) -> str:
    number = await undo(op, op.deps.hotel)
    return op.pending(until=timedelta(minutes=10)) if number is None else number


async def find_room(op: Operation[Deps]) -> Happened[str] | DidNotHappen | Unclear:
    number = await found(op, op.deps.hotel)
    return DidNotHappen() if number is None else Happened(number)


@app.tool(reconcile=find_room, compensate=cancel_hotel, timeout=TIMEOUT, settle_after=SOON)
async def book_hotel(op: Operation[Deps], trip: str, cents: int) -> str:
    return await order(op, op.deps.hotel, trip, "room", cents)


# ---- the airline: it can be asked afterwards, and does not give back what was cheap


async def find_cancellation(op: Operation[Deps]) -> Happened[None] | DidNotHappen | Unclear:
    return DidNotHappen() if await found(op, op.deps.flight) is None else Happened(None)


@app.tool(reconcile=find_cancellation, timeout=TIMEOUT, settle_after=SOON, retry=TWICE)
async def cancel_flight(op: Operation[Deps]) -> None:
    await undo(op, op.deps.flight)


async def find_seat(op: Operation[Deps]) -> Happened[str] | DidNotHappen | Unclear:
    number = await found(op, op.deps.flight)
    return DidNotHappen() if number is None else Happened(number)


@app.tool(reconcile=find_seat, compensate=cancel_flight, timeout=TIMEOUT, settle_after=SOON)
async def book_flight(op: Operation[Deps], trip: str, fare: str, cents: int) -> str:
    return await order(op, op.deps.flight, trip, fare, cents)


# ---- the card: nobody can ask it afterwards. What is in doubt here, a person decides


async def give_back(op: Operation[Deps]) -> None:
    await undo(op, op.deps.card)


@app.tool(compensate=give_back, timeout=TIMEOUT, settle_after=SOON)
async def charge_card(op: Operation[Deps], trip: str, cents: int) -> str:
    return await order(op, op.deps.card, trip, "charge", cents)


@app.agent(on_failure="rollback")
async def travelling(run: Run[Deps], trip: Trip) -> Booked:
    hotel = await run.call(book_hotel, trip.id, trip.hotel_cents)
    flight = await run.call(book_flight, trip.id, trip.fare, trip.flight_cents)
    card = await run.call(charge_card, trip.id, trip.hotel_cents + trip.flight_cents)
    if not trip.visa:
        raise NoVisa(trip.id)
    return Booked(hotel=hotel, flight=flight, card=card)
