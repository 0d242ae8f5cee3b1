"""One scenario's world: a service, a database, a control process, and workers that are killed and frozen."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from conformance.adapter import Control, NotOffered, Refused, Row
from conformance.judge import Seen
from conformance.servers import NoServer, Own, Postgres, Server, Way, ended, free_port
from conformance.service import Desk
from conformance.waiting import TooLate, now, pause, until

Plan = Sequence[Mapping[str, object]]
LEASE_S = 3.0
RETRY_S = 2.0
_ENDED = ("succeeded", "failed", "missing")


class Scene:
    """Everything is gone when it is closed, except what it has noted."""

    def __init__(self, row: Row, plan: Plan, *, cuttable: bool = False) -> None:
        self.row = row
        self.home = Path(tempfile.mkdtemp(prefix="conformance-"))
        # A database server runs as another user, who has to get in.
        self.home.chmod(0o755)
        self.happened: list[str] = []
        self._began = now()
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._plans = 0
        self._approved: set[str] = set()
        self._desk = Desk(row.service)
        self.service = self._desk.service
        self._environment = row.environment() | {
            "CONFORMANCE_SERVICE": self._desk.url,
            "CONFORMANCE_MODE": row.mode,
            "CONFORMANCE_LEASE_S": f"{LEASE_S:g}",
            "CONFORMANCE_RETRY_S": f"{RETRY_S:g}",
            "CONFORMANCE_HOME": str(self.home),
            "CONFORMANCE_WORKER": "",
            "CONFORMANCE_REPLACES": "",
        }
        self.server = self._server()
        self.way: Way | None = None
        try:
            self.server.start()
            url = self.server.url
            if cuttable and row.store == "postgres":
                port = int(url.rsplit(":", 1)[1].split("/")[0])
                self.way = Way(port)
                url = url.replace(f":{port}/", f":{self.way.port}/")
            self._environment["CONFORMANCE_STORE"] = url
            self._control: Control | None = None
            self.deploy(plan)
            self.ask("setup")
        except BaseException:
            self.close()
            raise

    def _server(self) -> Server:
        match self.row.store:
            case "postgres":
                return Postgres(self.home)
            case "own":
                words = {"home": str(self.home)} | {name: str(free_port()) for name in ("port", "port2", "port3")}
                self._environment |= {f"CONFORMANCE_{name.upper()}": words[name] for name in words if name != "home"}
                command = [part.format_map(words) for part in self.row.server]
                return Own(self.home, command, self._environment)
            case "sqlite":
                return NoServer(f"sqlite:///{self.home}/store.db")
            case _:
                return NoServer(f"file://{self.home}/store")

    def note(self, what: str) -> None:
        """Say what was done, with its second."""
        self.happened.append(f"{now() - self._began:.1f} {what}")

    # What adapters answer

    def ask(self, do: str, **said: object) -> Mapping[str, object]:
        assert self._control is not None
        return self._control.ask(do, said)

    def start(self, run: str = "r1") -> str:
        self.ask("start", run=run)
        self.note(f"{run} started")
        return run

    def seen(self, run: str) -> Seen:
        """Where the run stands now; a control that cannot be asked is no answer yet."""
        try:
            said = self.ask("status", run=run)
        except Refused as refused:
            return Seen("unreachable", str(refused))
        output = said.get("output")
        return Seen(str(said["status"]), str(said.get("says", "")), output if isinstance(output, list) else None)

    def history(self, run: str) -> list[str]:
        try:
            return [str(line) for line in cast("list[object]", self.ask("history", run=run)["lines"])]
        except (Refused, NotOffered) as refused:
            return [f"no history: {refused}"]

    def trouble(self) -> list[str]:
        try:
            return [str(line) for line in cast("list[object]", self.ask("trouble")["says"])]
        except (Refused, NotOffered):
            return []

    def approval(self, run: str, limit: float = 90.0) -> str:
        """The id of what waits for a person. Raises TooLate."""
        found: list[Mapping[str, object]] = []

        def asked() -> bool:
            with suppress(Refused):
                found[:] = cast("list[Mapping[str, object]]", self.ask("approvals", run=run)["open"])
            return bool(found)

        until(asked, f"{run} asks for an approval", limit)
        self.note(f"{run} asks for an approval of {json.dumps(found[0].get('args'))}")
        return str(found[0]["approval"])

    def _asks_again(self, run: str) -> list[str]:
        """What waits for a person who has not agreed to it yet."""
        try:
            found = cast("list[Mapping[str, object]]", self.ask("approvals", run=run)["open"])
        except (Refused, NotOffered):
            return []
        open_ = [one for one in found if str(one["approval"]) not in self._approved]
        return [f"it asks for an approval of {json.dumps(one.get('args'))}" for one in open_]

    def approve(self, run: str, approval: str) -> bool:
        """Whether the engine has taken it."""
        self._approved.add(approval)
        try:
            self.ask("approve", run=run, approval=approval)
        except Refused as refused:
            self.note(f"approval of {run} refused: {refused}")
            return False
        self.note(f"{run} approved")
        return True

    def settle(self, run: str, limit: float | None = None) -> Seen:
        """Wait until the run has ended, or stands still as blocked for a while; then where it stands."""
        limit = self.row.limit if limit is None else limit
        end, still = now() + limit, 0.0
        while True:
            seen = self.seen(run)
            still = (still or now()) if seen.status == "blocked" else 0.0
            if seen.status in _ENDED or (still and now() - still > 1.5 * LEASE_S) or now() > end:
                break
            pause(0.3)
        pause(1.0)
        seen = self.seen(run)
        if seen.status not in _ENDED:
            seen = Seen(seen.status, seen.says, seen.output, [*self.trouble(), *self._asks_again(run)])
        self.note(f"{run} is {seen.status}")
        return seen

    # Processes

    def deploy(self, plan: Plan) -> None:
        """Workers that are started from now on have this code; so has whoever asks."""
        self._plans += 1
        file = self.home / f"plan-{self._plans}.json"
        text = json.dumps(plan)
        file.write_text(text, "utf-8")
        build = hashlib.sha256(text.encode()).hexdigest()[:12]
        self._environment |= {"CONFORMANCE_PLAN": str(file), "CONFORMANCE_BUILD": build}
        if self._control is not None:
            self._control.close()
            self.note("other code is deployed")
        self._control = Control(self.row.control, self._environment, self.home / "control.log")

    def worker(self, name: str = "a", *, replaces: str = "", ready: bool = False) -> str:
        """Start one; with `ready`, return when it says that it serves."""
        told = {"CONFORMANCE_WORKER": name, "CONFORMANCE_REPLACES": replaces}
        log = self.home / f"worker-{name}.log"
        with log.open("ab") as output:
            self._workers[name] = subprocess.Popen(
                self.row.worker,
                env=self._environment | told,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd=self.home,
                start_new_session=True,
            )
        self.note(f"worker {name} started" + (f" in place of {replaces}" if replaces else ""))
        if ready:
            until(lambda: "ready" in log.read_text("utf-8", "replace").split(), f"worker {name} is ready", 60)
        return name

    def kill(self, name: str = "a") -> None:
        """SIGKILL, for the worker and what it has started."""
        ended(self._workers.pop(name), signal.SIGKILL)
        self.note(f"worker {name} killed")

    def signal(self, name: str, number: signal.Signals) -> None:
        os.killpg(self._workers[name].pid, number)
        self.note(f"{number.name} to worker {name}")

    def alive(self, name: str) -> bool:
        return self._workers[name].poll() is None

    def logs(self) -> list[str]:
        """The last lines of every process, for who has to find out why."""
        found = []
        for log in sorted(self.home.glob("*.log")):
            lines = log.read_text("utf-8", "replace").splitlines()[-12:]
            found += [f"{log.name}: {line[:300]}" for line in lines]
        return found

    def close(self) -> None:
        for process in self._workers.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
            ended(process, signal.SIGKILL)
        if getattr(self, "_control", None) is not None:
            cast(Control, self._control).close()
        if self.way is not None:
            self.way.close()
        self.server.kill()
        self._desk.close()
        shutil.rmtree(self.home, ignore_errors=True)


__all__ = ["LEASE_S", "RETRY_S", "Plan", "Scene", "TooLate"]
