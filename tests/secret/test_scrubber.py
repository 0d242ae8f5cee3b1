"""A planted value is found in every spelling, and none of it is left after the scrubber."""

import base64
import html
import json
import logging
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.model.errors import SettingInvalid
from outlive.secret import Scrubber, ScrubbingFilter

CANARY = 'c4n/ary "zü\\+&✓'
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "repr": repr,
    "json": json.dumps,
    "json with unicode": lambda one: json.dumps(one, ensure_ascii=False),
    "json with slashes escaped": lambda one: json.dumps(one).replace("/", "\\/"),
    "json with capital escapes": lambda one: json.dumps(one).replace("00fc", "00FC"),
    "json in json": lambda one: json.dumps(json.dumps({"token": one})),
    "url path": quote,
    "url part": lambda one: quote(one, safe=""),
    "url form": quote_plus,
    "url in small letters": lambda one: re.sub("%..", lambda found: found.group().lower(), quote(one, safe="")),
    "hex": lambda one: one.encode().hex(),
    "capital hex": lambda one: one.encode().hex().upper(),
    "html": html.escape,
    "base64": lambda one: base64.b64encode(one.encode()).decode(),
    "url base64": lambda one: base64.urlsafe_b64encode(one.encode()).decode(),
    "basic auth": lambda one: base64.b64encode(f"user:{one}".encode()).decode(),
    "basic auth 1": lambda one: base64.b64encode(f"user1:{one}:x".encode()).decode(),
    "basic auth 2": lambda one: base64.b64encode(f"user12:{one}:xy".encode()).decode(),
}


def scrubber(*values: str) -> Scrubber:
    made = Scrubber()
    for value in values:
        made.register("bank/token", value)
    return made


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_found_and_taken_out(spelling: str) -> None:
    text = f"before {SPELLINGS[spelling](CANARY)} after"
    assert scrubber(CANARY).finds(text)
    clean = scrubber(CANARY).scrub(text)
    assert "[secret bank/token]" in clean
    assert not scrubber(CANARY).finds(clean)
    assert clean.startswith("before ")
    assert clean.endswith(" after")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_without_a_scrubber_the_canary_stays(spelling: str) -> None:
    text = f"before {SPELLINGS[spelling](CANARY)} after"
    assert Scrubber().scrub(text) is text
    assert scrubber(CANARY).finds(text)


def test_text_without_a_secret_is_the_same_object() -> None:
    text = "nothing to see"
    assert scrubber(CANARY).scrub(text) is text


def test_the_longest_counts() -> None:
    made = Scrubber()
    made.register("short", "abcd")
    made.register("long", "abcd-efgh")
    assert made.scrub("x abcd-efgh abcd") == "x [secret long] [secret short]"


def test_a_value_may_be_registered_again_under_another_name() -> None:
    made = scrubber(CANARY)
    made.register("other", CANARY)
    assert made.scrub(CANARY) == "[secret other]"


@pytest.mark.parametrize("value", ["", "a", "abc"])
def test_short_values_are_refused_without_showing_them(value: str) -> None:
    with pytest.raises(SettingInvalid, match="under 4 characters") as caught:
        Scrubber().register("pin", value)
    assert caught.value.value == "…"
    assert caught.value.name == "pin"


@given(st.text(min_size=4, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_any_value_is_found_in_any_text(value: str, before: str, after: str) -> None:
    made = Scrubber()
    made.register("n", value)
    clean = made.scrub(before + value + after)
    assert "[secret n]" in clean
    assert value not in clean.replace("[secret n]", "\0") or value in "[secret n]\0"


def test_threads_may_register_while_others_scrub() -> None:
    made = Scrubber()
    values = [f"value-{n:04}" for n in range(200)]

    def register_and_scrub(value: str) -> str:
        made.register(value, value)
        return made.scrub(f"<{value}>")

    with ThreadPoolExecutor(8) as pool:
        cleaned = list(pool.map(register_and_scrub, values))
    assert cleaned == [f"<[secret {value}]>" for value in values]
    assert made.scrub(" ".join(values)) == " ".join(f"[secret {value}]" for value in values)


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.lines.append(self.format(record))


@pytest.fixture
def kept() -> Kept:
    return Kept()


def logger(kept: Kept, made: Scrubber | None) -> logging.Logger:
    if made is not None:
        kept.addFilter(ScrubbingFilter(made))
    log = logging.Logger("scrubbed")
    log.addHandler(kept)
    return log


def everything(kept: Kept) -> str:
    return repr([vars(record) for record in kept.records]) + "\n".join(kept.lines)


def log_everywhere(log: logging.Logger) -> None:
    log.info(CANARY)
    log.info("token %s", CANARY)
    log.info("token %(token)s", {"token": CANARY})
    log.info("cut %.1s", CANARY)
    log.info("wrong %d", CANARY)
    log.info("extra", extra={"token": CANARY, "deep": {"list": [CANARY]}, "object": ValueError(CANARY)})
    try:
        raise ValueError(CANARY)
    except ValueError:
        log.exception("failed")


def test_log_records_hold_no_secret(kept: Kept) -> None:
    log = logger(kept, scrubber(CANARY))
    kept.setFormatter(logging.Formatter("%(message)s"))
    log_everywhere(log)
    assert len(kept.records) == 7
    assert not scrubber(CANARY).finds(everything(kept))
    assert "ValueError: [secret bank/token]" in kept.lines[-1]


def test_the_canary_is_found_in_records_that_were_not_scrubbed(kept: Kept) -> None:
    log = logger(kept, None)
    log.info("token %s", CANARY)
    assert scrubber(CANARY).finds(everything(kept))


def test_records_without_a_secret_keep_their_arguments(kept: Kept) -> None:
    logger(kept, scrubber(CANARY)).info("paid %s", "inv-7")
    assert (kept.records[0].msg, kept.records[0].args) == ("paid %s", ("inv-7",))
    assert kept.lines == ["INFO paid inv-7"]


def test_a_scrub_with_twenty_secrets_is_quick() -> None:
    made = scrubber(*(f"{n:02}-some-secret-value/{n * 7919:08x}" for n in range(20)))
    text = "an ordinary line of a log that holds no secret at all, " * 200
    took = min(timed(lambda: made.scrub(text)) for _ in range(5))
    assert took < 0.02


def timed(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def test_the_last_name_given_counts_in_every_spelling() -> None:
    scrubber = Scrubber()
    scrubber.register("bank_token", 'hunter2"2')
    scrubber.register("bank/token", 'hunter2"2')
    assert scrubber.scrub('hunter2"2 and hunter2%222') == "[secret bank/token] and [secret bank/token]"
