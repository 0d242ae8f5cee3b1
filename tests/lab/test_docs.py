"""The example of `docs/testing.md` is a test module: it runs as it stands there."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


async def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text("utf-8"), re.S)
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
        assert len(tests) == 3
        for test in tests:
            await test()
    assert "points per store method" in capsys.readouterr().out
