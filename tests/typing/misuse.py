"""Misuses of the public surface. Both type checkers refuse each line that is marked `# refused`, and no other.

Never imported: some of it would be refused at run time too.
"""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import date
from typing import cast

from pydantic import BaseModel

from outlive import DidNotHappen, Handle, Happened, Operation, Outlive, Retry, Run, Unclear
from tests.typing.shop.app import app
from tests.typing.shop.closing import close_till
from tests.typing.shop.deps import Deps, open_deps
from tests.typing.shop.letters import greeting, write_to
from tests.typing.shop.orders import Confirmation, Order, find_order, order_book, purchase
from tests.typing.shop.quotes import discount, postage, quote
from tests.typing.shop.stock import Count, price, shelf, stocktake, write_count


class Wrong(BaseModel):
    """Not what anybody asked for."""

    text: str = ""


# ---- what an agent does


async def arguments(run: Run[Deps]) -> None:
    """A tool's call and a step have the parameters of their function."""
    await run.call(order_book, 17, 2)  # refused: the type of an argument
    await run.call(order_book, "978", "2")  # refused: the type of an argument
    await run.call(order_book, "978")  # refused: an argument is missing
    await run.call(order_book, "978", 2, True)  # refused: it is keyword-only
    await run.call(order_book, "978", 2, fast=True)  # refused: no such keyword
    await run.call(order_book, "978", 2, express="yes")  # refused: the type of a keyword
    await run.call(write_to, "Ada", b"text")  # refused: the type of an argument of a plain tool
    await run.call(shelf)  # refused: an argument of a plain tool is missing
    await run.step(price, "3")  # refused: the type of an argument of a step
    await run.step(greeting, "Ada")  # refused: an argument of a step is missing
    await run.step(discount, name="Ada")  # refused: no such keyword of a step
    await run.step(postage, 3, "medium")  # refused: not one of the literals


async def kinds_of_calls(run: Run[Deps], op: Operation[Deps]) -> None:
    """A tool is called through `call`, a function through `step`."""
    await run.step(order_book, "978", 2)  # refused: a tool is not a step
    await run.call(price, 3)  # refused: a function is not a tool
    await run.call(find_order)  # refused: a look-up is not a tool
    await run.step(purchase, Order(isbn="978", copies=1))  # refused: an agent is not a step
    await run.call(purchase, Order(isbn="978", copies=1))  # refused: an agent is not a tool
    await order_book(op, "978", 2)  # refused: a tool cannot be called directly
    await purchase(run, Order(isbn="978", copies=1))  # refused: an agent cannot be called directly
    await order_book.test(op, "978")  # refused: the body of a tool has its parameters in a test too


async def results(run: Run[Deps]) -> None:
    """What a call gives has the type that its function returns."""
    number: int = await run.call(order_book, "978", 2)  # refused: it is a Confirmation
    books: list[int] = await run.call(shelf, "A")  # refused: it is a list of texts
    worth: int = await run.step(price, 3)  # refused: it is a Decimal
    pair: tuple[int, int] = await run.gather(run.step(price, 1), run.step(discount, "A"))  # refused: Decimal first
    names: list[int] = await run.map(named, ["A"], key=str)  # refused: a list of texts
    moment: date = run.random()  # refused: a float
    await cast("Awaitable[object]", run.log).send(number, books, worth, pair, names, moment)  # refused: no such thing


async def forgotten_await(run: Run[Deps]) -> None:
    """A call that is not awaited has not happened."""
    books = run.call(shelf, "A")
    print(len(books))  # refused: nobody has awaited it
    print(1 + run.step(discount, "Ada"))  # refused: nobody has awaited it
    run.emit("counted", Count(left=[]))  # refused: nobody awaits it
    run.call(write_count, "A", 3)  # refused: nobody awaits it
    run.step(price, 3)  # refused: nobody awaits it


async def named(item: str) -> str:
    return item


def number_of(item: str) -> int:
    return len(item)


async def scopes(run: Run[Deps]) -> None:
    """Branches are awaitable, and each has a key that is a text."""
    await run.map(named, ["A"], key=number_of)  # refused: a key is a text
    await run.map(named, [1, 2], key=str)  # refused: the type of an item
    await run.map(named, ["A"])  # refused: the key is missing
    await run.map(number_of, ["A"], key=str)  # refused: not an async function
    await run.gather(1, 2)  # refused: not awaitable
    await run.first(run.step(price, 3))  # refused: a branch has a name
    await run.first(price=3)  # refused: not awaitable


async def others(run: Run[Deps]) -> None:
    """Options, states of turns, and events."""
    await run.options(timeout=30).call(shelf, "A")  # refused: a duration
    await run.options(retry=3).call(shelf, "A")  # refused: a Retry
    await run.options(retires=Retry()).call(shelf, "A")  # refused: misspelt
    async for _ in run.turns({"left": []}):  # refused: a state is a model
        pass
    for _ in run.turns(Count(left=[])):  # refused: it is an `async for`
        pass
    async for count in run.turns(Count(left=[])):
        count.shelves = 3  # refused: no such field of the state
    await run.emit("counted", {"left": []})  # refused: an event is a model
    print(run.deps.bank)  # refused: no such dependency
    await run.sleep(60)  # refused: a duration or an instant
    await run.receive("offers")  # refused: the kind of message is missing
    await run.ask("Go on?", bool)  # refused: the role is missing


# ---- what a tool declares


@app.tool(effect="externl")  # refused: misspelt
async def misspelt(op: Operation[Deps], isbn: str) -> str:
    return isbn


@app.tool(effects="read")  # refused: no such option
async def unknown_option(op: Operation[Deps], isbn: str) -> str:
    return isbn


@app.tool(timeout=30)  # refused: a duration
async def number_as_duration(op: Operation[Deps], isbn: str) -> str:
    return isbn


@app.tool(raises=ValueError)  # refused: a tuple
async def one_exception(op: Operation[Deps], isbn: str) -> str:
    return isbn


@app.tool(not_sent=(BaseException,))  # refused: a signal is not for a tool to declare
async def signal(op: Operation[Deps], isbn: str) -> str:
    return isbn


@app.tool(retry=Retry(attempts="five"))  # refused: a number
async def text_as_number(op: Operation[Deps], isbn: str) -> str:
    return isbn


@app.tool()  # refused: the first parameter is the operation
async def no_operation(isbn: str) -> str:
    return isbn


@app.tool()  # refused: the dependencies of another application
async def other_deps(op: Operation[Wrong], isbn: str) -> str:
    return isbn


async def looks_up_number(op: Operation[Deps]) -> Happened[int] | DidNotHappen | Unclear:
    return Happened(len(op.key))


@app.tool(reconcile=looks_up_number)  # refused: the look-up knows a number, the tool gives a text
async def other_outcome(op: Operation[Deps], isbn: str) -> str:
    return isbn


@app.tool(reconcile=looks_up_number)  # refused: the same of a plain tool
def other_outcome_of_a_plain_tool(op: Operation[Deps], isbn: str) -> str:
    return isbn


async def looks_up_text(op: Operation[Deps]) -> str:
    return op.key


def looks_up_blocking(op: Operation[Deps]) -> Happened[str] | DidNotHappen | Unclear:
    return Happened(op.key)


async def looks_up_elsewhere(op: Operation[Wrong]) -> Happened[str] | DidNotHappen | Unclear:
    return Happened(op.key)


async def looks_up_with_arguments(op: Operation[Deps], isbn: str) -> Happened[str] | DidNotHappen | Unclear:
    return Happened(isbn)


lookup_a = app.tool(reconcile=looks_up_text)  # refused: it answers with something else
lookup_b = app.tool(reconcile=looks_up_blocking)  # refused: a look-up is an `async def`
lookup_c = app.tool(reconcile=looks_up_elsewhere)  # refused: the dependencies of another application
lookup_d = app.tool(reconcile=looks_up_with_arguments)  # refused: it is given the operation alone


async def inside_a_tool(op: Operation[Deps]) -> None:
    """What an operation is good for."""
    await op.note(status=200)  # refused: facts are texts
    token: int = await op.secret("carrier/token")  # refused: a text
    await op.deps.bank(token)  # refused: no such dependency
    op.connection.commit()  # refused: the engine commits
    Happened()  # refused: it happened, with an outcome
    Unclear()  # refused: say why


# ---- what an agent is


@app.agent()  # refused: an agent is an `async def`
def blocking(run: Run[Deps], day: date) -> str:
    return str(day)


@app.agent()  # refused: it has an input
async def without_input(run: Run[Deps]) -> str:
    return run.id


@app.agent()  # refused: it has one input
async def two_inputs(run: Run[Deps], isbn: str, copies: int) -> str:
    return isbn * copies


@app.agent()  # refused: the dependencies of another application
async def foreign(run: Run[Wrong], isbn: str) -> str:
    return isbn


@app.agent(version=2)  # refused: a version is a text
async def numbered(run: Run[Deps], isbn: str) -> str:
    return isbn


other: Outlive[Wrong] = Outlive(deps=open_deps)  # refused: it opens other dependencies


# ---- what the world outside does


async def outside() -> None:
    """Starting, asking, waiting."""
    await app.start(purchase, "978")  # refused: the type of the input
    await app.start(stocktake, [1, 2])  # refused: the type of the input
    await app.start(quote)  # refused: the input is missing
    await app.start(price, 3)  # refused: a function is not an agent
    await app.start(shelf, "A")  # refused: a tool is not an agent
    await app.start(quote, 3, id=17)  # refused: an id is a text
    await app.start(quote, 3, deadline=60)  # refused: a duration
    await app.start(quote, 3, prority=1)  # refused: misspelt
    app.start(quote, 3)  # refused: nobody awaits it
    text: str = await (await app.start(quote, 3)).result()  # refused: a Decimal
    handle: Handle[str] = app.handle(purchase, "order-17")  # refused: a handle of a Confirmation
    bought: Confirmation = await app.handle(purchase, text).result()  # refused: it may be None
    closing = app.start(close_till, date(2026, 3, 1))
    await closing.result()  # refused: nobody has awaited the start
    await handle.result(timeout=60)  # refused: a duration
    await handle.send("offers", text)  # refused: the sender's key is missing
    await handle.answer("answer:ask", True)  # refused: who answers is missing
    handle.events(after=3)  # refused: a cursor is a text
    await handle.cancel(bought)  # refused: not there yet
    with app:  # refused: it is an `async with`
        pass
    async with app.worker(concurency=5):  # refused: misspelt
        pass
