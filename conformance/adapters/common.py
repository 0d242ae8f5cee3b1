"""What adapters written in Python share: the code that they run, the requests to the service, the loop of control.

Only the standard library, so that it can be imported in any engine's environment.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MODE = os.environ.get("CONFORMANCE_MODE", "")
STORE = os.environ.get("CONFORMANCE_STORE", "")
BUILD = os.environ.get("CONFORMANCE_BUILD", "")
HOME = Path(os.environ.get("CONFORMANCE_HOME", "."))
WORKER = os.environ.get("CONFORMANCE_WORKER", "")
REPLACES = os.environ.get("CONFORMANCE_REPLACES", "")
LEASE_S = float(os.environ.get("CONFORMANCE_LEASE_S", "30"))
RETRY_S = float(os.environ.get("CONFORMANCE_RETRY_S", "1"))
SERVICE = os.environ.get("CONFORMANCE_SERVICE", "")


class Refusal(Exception):
    """The service says that it did not act: it may be asked again."""


class NoAnswer(Exception):
    """The service did not answer: nobody knows whether it acted."""


class NotOffered(Exception):
    """The engine has no such thing."""


# What may be repeated: under a key, also what had no answer.
REPEATED = (Refusal, NoAnswer) if MODE == "keys" else (Refusal,)


def plan() -> list[dict[str, Any]]:
    """The code."""
    found: list[dict[str, Any]] = json.loads(Path(os.environ["CONFORMANCE_PLAN"]).read_text("utf-8"))
    return found


def act(run: str, name: str, args: Mapping[str, Any], key: str = "", guard: Callable[[], object] = lambda: None) -> str:
    """Announce and act: the receipt; `guard` is asked just before bytes go out. Raises Refusal, NoAnswer."""
    _post("/about", {"run": run, "act": name, "args": args}, "")
    guard()
    return str(_post("/act", {"run": run, "act": name, "args": args}, key)["receipt"])


def acted(key: str) -> str | None:
    """The receipt of what was done under this key, None if nothing is known of it. Raises NoAnswer."""
    query = urllib.parse.urlencode({"key": key})
    try:
        with urllib.request.urlopen(f"{SERVICE}/acted?{query}", timeout=30) as answer:
            return str(json.load(answer)["receipt"])
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise NoAnswer(str(error)) from error


def entry(call: Mapping[str, Any], receipt: str) -> dict[str, Any]:
    """A call as the result of a run tells it, with the arguments that the code has now."""
    return {"act": call["act"], "args": call["args"], "receipt": receipt}


def undone(call: Mapping[str, Any]) -> dict[str, Any]:
    """The call that undoes another one."""
    return {"call": call["undo"], "act": call["undo"], "args": call["args"]}


def ready() -> None:
    """Tell the kit that this worker serves."""
    print("ready", flush=True)


def serve(requests: Mapping[str, Callable[..., Mapping[str, Any] | None]]) -> None:
    """Answer requests until the kit has gone, each in a thread of its own, so that two may come at once."""
    lock = threading.Lock()

    def answer(said: dict[str, Any]) -> None:
        number, do = said.pop("id"), said.pop("do")
        try:
            if do not in requests:
                found: Mapping[str, Any] = {"not_offered": f"no {do}"}
            else:
                found = requests[do](**said) or {}
        except NotOffered as error:
            found = {"not_offered": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever the engine raises is its answer
            found = {"error": f"{type(error).__name__}: {error}"}
        with lock:
            print(json.dumps({"id": number, **found}, default=str), flush=True)

    for line in sys.stdin:
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()


def _post(path: str, body: Mapping[str, Any], key: str) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "X-Worker": WORKER} | ({"Idempotency-Key": key} if key else {})
    request = urllib.request.Request(SERVICE + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        if error.code == 503:
            raise Refusal(str(error)) from error
        raise
    except OSError as error:
        raise NoAnswer(f"{path}: {error}") from error


def identity() -> str:
    """The name under which this worker is known to an engine in which only the same worker goes on with its runs."""
    file = HOME / f"identity-{WORKER}"
    file.write_text((HOME / f"identity-{REPLACES}").read_text("utf-8") if REPLACES else WORKER, "utf-8")
    return file.read_text("utf-8")


def postgres_size() -> dict[str, Any]:
    """What the database takes, for adapters that have psycopg."""
    import psycopg

    with psycopg.connect(STORE) as connection:
        row = connection.execute("select pg_database_size(current_database())").fetchone()
    return {"bytes": row[0] if row else 0}


def tell_person(run: str, approval: str, args: Mapping[str, Any]) -> None:
    """Show somebody what is to be approved, for engines in which that is the application's business."""
    (HOME / f"asked-{run}").write_text(json.dumps({"approval": approval, "args": args}), "utf-8")


def asked_of_person(run: str) -> dict[str, Any]:
    """What was shown, as an answer to `approvals`."""
    file = HOME / f"asked-{run}"
    return {"open": [json.loads(file.read_text("utf-8"))] if file.exists() else []}
