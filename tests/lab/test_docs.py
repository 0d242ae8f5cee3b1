"""The example of `docs/testing.md` is a test module: it runs as it stands there."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


async def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "testing.md").read_text("utf-8")
    [code] = re.findall(r"```python\n(.*?)```", page, re.S)
    [report] = re.findall(r"```text\n(.*?)```", page, re.S)
    path = tmp_path / "invite.py"
    path.write_text(code, "utf-8")
    spec = importlib.util.spec_from_file_location("invite", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclass looks its own module up.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "invite", module)
        spec.loader.exec_module(module)
        tests = [value for name, value in vars(module).items() if name.startswith("test_")]
        assert len(tests) == 4
        for test in tests:
            await test()
    # How often a worker asks its store is not the page's to promise: the words are compared, not the numbers.
    assert re.sub(r" *\d+", " n", capsys.readouterr().out) == re.sub(r" *\d+", " n", report)
