"""The git repository that is worked on: files and commits, by the `git` that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PROJECT = Path(__file__).parent / "project"
TRAILER = "Operation"
# The settings of whoever runs this have no say here: no hooks of theirs, no signatures.
_GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
_WHO = ("-c", "user.name=Maintainer", "-c", "user.email=maintainer@example.invalid")


class NothingToCommit(Exception):
    """No file differs from the last commit."""


class NotEdited(Exception):
    """The text is not there, or not once."""


@dataclass(frozen=True)
class Commit:
    """A commit; `operation` is what its trailer says."""

    id: str
    subject: str
    operation: str


class Repository:
    """A working copy with its history."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def made(cls, root: Path) -> Self:
        """A new one, with a project that has five defects and says so."""
        one = cls(root)
        root.mkdir(parents=True)
        for file in PROJECT.glob("*.txt"):
            (root / file.stem).write_text(file.read_text("utf-8"), "utf-8")
        one._git("init", "--quiet", "--initial-branch=main")
        one._git("add", "--all")
        one._git("commit", "--quiet", "--message=A small project")
        return one

    def files(self) -> list[str]:
        """What git knows of."""
        return self._git("ls-files").splitlines()

    def read(self, path: str) -> str:
        """A file. Raises FileNotFoundError for what git does not know of, so for everything outside."""
        if path not in self.files():
            raise FileNotFoundError(path)
        return (self.root / path).read_text("utf-8")

    def edit(self, path: str, old: str, new: str) -> None:
        """Put `new` in the place of `old`, which has to be there once. What is done already is left as it is.

        Whole or not at all, also for who reads meanwhile.
        """
        text = self.read(path)
        if old and new and text.count(new) == 1 and text.replace(new, old).count(old) == 1:
            return
        if not old or text.count(old) != 1:
            raise NotEdited(f"{path} has that text {text.count(old) if old else 0} times, and not once")
        beside = self.root / ".git" / "edited"
        beside.write_text(text.replace(old, new), "utf-8")
        beside.replace(self.root / path)

    def stage(self) -> None:
        """Say that all that differs is to be committed. Raises NothingToCommit."""
        self._git("add", "--all")
        if not self._git("status", "--porcelain"):
            raise NothingToCommit("no file differs from the last commit")

    def commit(self, message: str, operation: str) -> Commit:
        """Commit it, on behalf of an operation."""
        self._git("commit", "--quiet", f"--message={message}", f"--trailer={TRAILER}: {operation}")
        return self.commits()[0]

    @property
    def is_being_written(self) -> bool:
        """Whether a `git` is at work on it, or was killed while it was."""
        return (self.root / ".git" / "index.lock").exists()

    def hook(self, script: str) -> None:
        """What git does behind each commit."""
        hook = self.root / ".git" / "hooks" / "post-commit"
        hook.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        hook.chmod(0o755)

    def of(self, operation: str) -> Commit | None:
        """The commit of an operation, if there is one."""
        return next((one for one in self.commits() if one.operation == operation), None)

    def commits(self) -> list[Commit]:
        """All of them, the newest first."""
        shown = f"%h%x1f%s%x1f%(trailers:key={TRAILER},valueonly,separator=%x2C)"
        lines = self._git("log", f"--format={shown}").splitlines()
        return [Commit(*line.split("\x1f")) for line in lines]

    def tested(self, name: str) -> tuple[bool, str]:
        """Whether the tests of that name pass, all without one, and the end of what they say."""
        # Nothing compiled is kept: an edit within the same second would not be noticed.
        command = [sys.executable, "-B", "-m", "unittest", "-q", name or "tests"]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode == 0, done.stderr[-1500:]

    def _git(self, *arguments: str) -> str:
        command = ["git", *_WHO, *arguments]
        environment = {**os.environ, **_GIT}
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout
