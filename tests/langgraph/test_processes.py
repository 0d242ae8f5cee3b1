"""Processes that want the same thread: at once, after one was killed, and after one was stopped and woke again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlive.langgraph import OutliveSaver
from tests.langgraph.resumer import CONFIG, graph
from tests.langgraph.waiting import until

pytestmark = pytest.mark.deaths
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/graphs.db" if request.param == "sqlite" else request.getfixturevalue("postgres")


class Scene:
    """A thread that waits for an answer, and processes that give it one."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._begun: list[subprocess.Popen[str]] = []
        with OutliveSaver(url) as saver:
            assert "__interrupt__" in graph(saver, folder, "nobody", 0).invoke({"done": []}, CONFIG)

    def resume(self, name: str, *, wait: float = 0) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.langgraph.resumer", self.url, str(self.folder), name, str(wait)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._begun.append(process)
        until(lambda: self.there(f"ready-{name}") or process.poll() is not None, f"{name} is ready")
        return process

    def there(self, name: str) -> bool:
        return (self.folder / name).exists()

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def acted(self) -> list[str]:
        return (self.folder / "acted").read_text().split() if self.there("acted") else []

    def done(self) -> list[str]:
        with OutliveSaver(self.url) as saver:
            found: list[str] = graph(saver, self.folder, "nobody", 0).get_state(CONFIG).values["done"]
            return found

    def end(self) -> None:
        for process in self._begun:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def scene_on(url: str, folder: Path) -> Iterator[Scene]:
    scene = Scene(url, folder)
    try:
        yield scene
    finally:
        scene.end()


def test_of_two_that_resume_at_once_one_acts(url: str, tmp_path: Path) -> None:
    with scene_on(url, tmp_path) as scene:
        each = {name: scene.resume(name) for name in ("anna", "bert")}
        for name in each:
            scene.touch(f"begin-{name}")
        until(lambda: any(one.poll() is not None for one in each.values()), "one is told")
        [told] = [name for name, process in each.items() if process.poll() is not None]
        [other] = each.keys() - {told}
        assert each[told].returncode == 3
        scene.touch(f"go-{other}")
        assert each[other].wait(60) == 0
        assert scene.acted() == [other] == scene.done()


def test_the_thread_of_one_that_was_killed_is_free_when_its_lease_has_ended(url: str, tmp_path: Path) -> None:
    with scene_on(url, tmp_path) as scene:
        anna, carl, bert = scene.resume("anna"), scene.resume("carl"), scene.resume("bert", wait=30)
        scene.touch("begin-anna")
        until(scene.acted, "anna is inside")
        anna.kill()
        scene.touch("begin-carl")
        assert carl.wait(60) == 3
        scene.touch("begin-bert")
        until(lambda: scene.acted() == ["anna", "bert"], "bert is inside")
        scene.touch("go-bert")
        assert bert.wait(60) == 0
        assert scene.done() == ["bert"]


def test_one_that_was_stopped_and_wakes_writes_nothing_more(url: str, tmp_path: Path) -> None:
    with scene_on(url, tmp_path) as scene:
        anna, bert = scene.resume("anna"), scene.resume("bert", wait=30)
        scene.touch("begin-anna")
        until(scene.acted, "anna is inside")
        # A file is locked by whoever is stopped while writing to it: what she has begun is over then.
        with OutliveSaver(url) as saver:
            saver.leave(saver.hold("another"))
            os.kill(anna.pid, signal.SIGSTOP)
        scene.touch("begin-bert")
        until(lambda: scene.acted() == ["anna", "bert"], "bert is inside")
        scene.touch("go-anna")
        os.kill(anna.pid, signal.SIGCONT)
        assert anna.wait(60) == 4
        scene.touch("go-bert")
        assert bert.wait(60) == 0
        assert scene.done() == ["bert"]
