"""No verb prints the password of its URLs: not what it prints for people and programs, its errors, its hints, its log,
nor a traceback.
"""

from __future__ import annotations

import logging
import re
import signal

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_help import VERBS
from tests.cli.waiting import Place

PASSWORD = "c4naryPw"
RUN = "greeted"
WHY = ("--why", "so")
# What each verb is called with, in an order in which as many as possible have something to say.
WORDS = {
    "db check": (), "db init": (), "config": (), "start": ("greet", '"bo"', "--id", RUN), "ps": (),
    "run": ("greet", '"ada"', "--id", "run"), "show": ("run",), "log": ("run",), "questions": (),
    "answer": (RUN, "q", '"a"'), "send": (RUN, "news", '"a"'), "resolve": ("op", "--happened", '"a"'),
    "retry": ("run", *WHY), "adopt": ("run",), "versions": (), "replay": (), "doctor": (), "audit verify": (),
    "notifications": (),
    "notify test": (), "pause": (RUN, *WHY), "resume": (RUN, *WHY), "export": ("run",), "import": ("none.jsonl",),
    "retention": (), "cancel": (RUN, *WHY), "terminate": (RUN, *WHY), "fork": ("run", *WHY),
    "restart": ("run", *WHY), "rollback": ("run", *WHY),
    "complete": ("op", "--did-not-happen", "--key", "k", *WHY),
    "db upgrade": ("--finish",), "worker": (), "approvals": (), "keys": (),
    "mcp": ("--agent", "nobody"), "approve": ("ap", "--role", "finance"),
    "check": (), "reject": ("ap", "--role", "finance", "--why", "no"),
}  # fmt: skip
# A user that is let in, and one that is not; URLs that are none are in test_passwords.py.
FORMS = (
    "postgresql://ada:{password}@/postgres?host={host}&connect_timeout=2",
    "postgresql://postgres:{password}@/postgres?host={host}&connect_timeout=2",
    "postgresql://postgres@/postgres?host={host}&password={password}&sslpassword={password}&connect_timeout=2",
)


def test_every_verb_is_called() -> None:
    assert sorted(WORDS) == sorted(VERBS)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_no_verb_prints_the_password_of_its_url(
    cli: Cli, postgres: str, form: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host, schema = re.findall(r"host=([^&]+).*?schema=([^&]+)", postgres)[0]
    url = form.format(password=PASSWORD, host=host) + f"&schema={schema}"
    monkeypatch.setenv("OUTLIVE_LISTEN_URL", f"postgresql://postgres:{PASSWORD}@/postgres?host={host}")
    caplog.set_level(logging.DEBUG)
    said = 0
    for verb, words in WORDS.items():
        if verb == "worker":
            continue  # it does not end by itself: see below
        monkeypatch.setenv("OUTLIVE_STORE", url)
        given = () if verb in ("check", "notify test") else ("--store", url)
        for more in ((), ("--json",), ("--debug",)):
            if more and more[0] not in {one for parameter in VERBS[verb].params for one in parameter.opts}:
                continue
            done = cli(*verb.split(), *words, *given, *more)
            said += len(done.output)
            assert PASSWORD not in done.output + repr(done.exception) + str(done.exception), (verb, more)
    assert said > 1000
    assert PASSWORD not in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("user", ["ada", "postgres"])
def test_a_worker_prints_none_either(place: Place, postgres: str, user: str) -> None:
    url = postgres.replace("postgres@", f"{user}:{PASSWORD}@", 1)
    assert PASSWORD in url
    listening = f"postgresql://nobody:{PASSWORD}@" + postgres.partition("@")[2]
    place.env |= {"OUTLIVE_STORE": url, "OUTLIVE_LISTEN_URL": listening, "OUTLIVE_LOG_LEVEL": "DEBUG"}
    worker = place.outlive("worker", "--debug")
    if user == "postgres":
        worker.line("hints")  # it cannot listen, and says so
        worker.send(signal.SIGTERM)
    worker.code() if user == "postgres" else worker.line("ada")
    worker.end()
    assert PASSWORD not in "\n".join(worker.seen)
