"""What the demo says of its kills and how it names the command are true wherever it runs."""

import subprocess
from pathlib import Path

import pytest

from examples.dunning.board import kills
from examples.dunning.fleet import program
from examples.dunning.person import Word
from examples.dunning.watch import Kill


def test_only_kills_on_cue_count_as_between_act_and_record() -> None:
    outside = [Kill(0, 1, (), "by somebody else"), Kill(0, 2, (), "between you and me, by somebody else")]
    assert kills(outside).startswith("2 (0 on cue, ")
    assert kills([*outside, Kill(0, 3, (), "x", on_cue=True)]).startswith("3 (1 on cue, ")


def test_the_printed_command_can_be_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in (Path(__file__).parents[2], tmp_path):
        monkeypatch.chdir(place)
        for line in (f"{program()} --version", str(Word(["--version"]))):
            done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
            assert done.stdout.startswith("outlive ")
