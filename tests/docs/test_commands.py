"""The commands that the documentation shows are there, and the one that begins it does what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from outlive.cli import app
from tests.docs.pages import PAGES, ROOT, blocks, name

VERBS = {str(command.name or getattr(command.callback, "__name__", "")) for command in app.registered_commands}
VERBS |= {str(group.name) for group in app.registered_groups}
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.M))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_there(page: Path) -> None:
    text = page.read_text("utf-8")
    code = "\n".join([*re.findall(r"`([^`\n]+)`", text), *blocks(page, "sh"), *blocks(page, "console")])
    assert set(re.findall(r"(?:^|&& |\$ )outlive ([a-z]+)", code, re.M)) - VERBS == set()
    assert set(re.findall(r"(?:^|&& |\$ )make ([a-z-]+)", code, re.M)) - TARGETS == set()


def test_the_command_of_the_readme_charges_once_however_often_it_is_said(tmp_path: Path) -> None:
    (shown,) = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines() if "outlive " in line]
    (tmp_path / "shop.py").write_text(blocks(ROOT / "README.md", "python")[0], "utf-8")
    install, command = shown.split(" && ")
    assert install == "pip install ."
    words = [str(Path(sys.executable).with_name("outlive")), *shlex.split(command)[1:]]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OUTLIVE_")}
    for _ in range(2):
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (0, '"Ada pays 1550"\n'), done.stderr
    assert (tmp_path / "outlive.db").exists()
