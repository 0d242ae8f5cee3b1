"""The examples in two releases each, with the world that they act on as it really is."""

from tests.gate.case import Stand, breaks, change, goes_on, same

ENDED = Stand("the run has ended", last=True)
PAYING = Stand("the charge of the card may have been sent", dies_in="charge_card")
BOOKING = Stand("the flight may have been booked", dies_in="book_flight")
ASKED = Stand("people are asked about a large invoice")
READING = Stand("one document is read, others are not", dies_after="step read")
EDITING = Stand("an edit may have been made", dies_in="edit_file", nth=2)
CHARGING = Stand("a charge may have been sent", dies_in="charge", nth=2)

_FLIGHT = "flight = await run.call(book_flight, trip.id, trip.fare, trip.flight_cents)"
_SENDS = ') -> Receipt:\n    return await send_charge(op, "cardnet"'
_HOTEL = "hotel = await run.call(book_hotel, trip.id, trip.hotel_cents)"

CASES = [
    *change(
        "travel", "the flight is booked before the hotel", "examples.travel",
        [(_FLIGHT, ""), (_HOTEL, f"{_FLIGHT}\n    {_HOTEL}")],
        (BOOKING, breaks("book_hotel(", "book_flight(")), (PAYING, breaks("book_hotel(", "book_flight(")),
    ),
    *change(
        "travel", "the flight costs a fee", "examples.travel",
        [(_FLIGHT, _FLIGHT.replace("flight_cents)", "flight_cents + 5)"))],
        (BOOKING, breaks("book_flight(", "book_flight(")),
    ),
    *change(
        "travel", "nobody needs a visa", "examples.travel",
        [("    if not trip.visa:\n        raise NoVisa(trip.id)\n", "")],
        (BOOKING, same()), (PAYING, same()), (ENDED, same()),
    ),
    *change(
        "travel", "a trip may have a `note`", "examples.travel",
        [("    visa: bool\n", '    visa: bool\n    note: str = ""\n')],
        (BOOKING, same()), (ENDED, same()),
    ),
    *change(
        "dunning", "`charge` gets the region too", "examples.dunning",
        [(f"card: str{_SENDS}", f'card: str, region: str = ""{_SENDS}')],
        (CHARGING, same()), (ENDED, same()),
    ),
    *change(
        "dunning", "small invoices are left out", "examples.dunning",
        [("    for invoice in await run.call(overdue, region):\n",
                "    for invoice in (await run.call(overdue, region))[1:]:\n")],
        (CHARGING, breaks("charge", "charge")),
    ),
    *change(
        "clerk", "people agree to what is above 500", "examples.clerk",
        [("LARGE_CENTS = 1_000_00", "LARGE_CENTS = 500_00")],
        (ASKED, same()), (ENDED, same()),
    ),
    *change(
        "clerk", "other instructions", "examples.clerk", [("Read every invoice", "Read each invoice")],
        (ASKED, same()), (ENDED, same()),
    ),
    *change(
        "clerk", "`book` is not one of its tools any more", "examples.clerk",
        [("toolset(list_invoices, read_invoice, book)", "toolset(list_invoices, read_invoice)")],
        (ASKED, breaks("book(", "the end of the branch")),
    ),
    *change(
        "research", "another model writes", "examples.research",
        [('"claude-haiku-4-5")\n\n\nPLANNER', '"claude-haiku-5")\n\n\nPLANNER'),
            ('FunctionModel(write, model_name="claude-haiku-4-5")',
                'FunctionModel(write, model_name="claude-haiku-5")')],
        (READING, goes_on()), (ENDED, same()),
    ),
    *change(
        "research", "`read` is called `read_document`", "examples.research",
        [("def read(op", "def read_document(op"), ("toolset(search, read)", "toolset(search, read_document)")],
        (READING, breaks("read(", "the end of the branch")), (ENDED, same()),
    ),
    *change(
        "maintainer", "other instructions", "examples.maintainer",
        [("Work through it, one fix after", "Work through it, a fix after")],
        (EDITING, same()),
    ),
    *change(
        "maintainer", "`run_tests` is external", "examples.maintainer",
        [('@app.tool(effect="read", retry=Retry(attempts=50), timeout=timedelta(minutes=2))',
                "@app.tool(timeout=timedelta(minutes=2))")],
        (EDITING, same()),
    ),
]  # fmt: skip
