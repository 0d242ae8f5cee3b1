"""The import contracts refuse what they say, shown on a toy tree with the same rooms."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = {
    "langgraph.saver": "import outlive.app, outlive.store.port",
    "openai_agents.driver": "import outlive.app, outlive.harness.function, outlive.engine.run",
    "pydantic_ai.driver": "import outlive.app, outlive.engine.run",
    "claude.transcripts": "import outlive.app, outlive.store.port",
    "cli.ps": "import outlive.app, outlive.mcp",
    "a2a.tasks": "import outlive.app",
    "gate.judge": "import outlive.app, outlive.engine.rehearsal",
    "mcp.server": "import outlive.app, outlive.engine.control",
    "app.compose": "import outlive.store.sqlite, outlive.store.postgres, outlive.harness.function, outlive.engine.run",
    "harness.function": "import outlive.engine.run",
    "lint.reach": "",
    "duty.rota": "import outlive.engine.run, outlive.store.port",
    "engine.run": "import outlive.store.port, outlive.secret.scrub",
    "store.port": "import outlive.log.entry",
    "store.sqlite.store": "import outlive.store.port",
    "store.postgres.store": "import outlive.store.port",
    "secret.scrub": "import outlive.log.entry",
    "log.entry": "import outlive.model.ids",
    "model.ids": "",
    "testing.lab": "import outlive.app, outlive.store.sqlite",
}


def lint(tmp_path: Path, modules: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the project's contracts over a tree `outlive` of these modules."""
    for name, text in modules.items():
        path = tmp_path / "outlive" / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", "utf-8")
        for package in path.parents:
            if package == tmp_path:
                break
            (package / "__init__.py").touch()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


def test_the_imports_that_the_design_needs_are_allowed(tmp_path: Path) -> None:
    done = lint(tmp_path, MODULES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("importer", "imported", "contract"),
    [
        ("model.ids", "log.entry", "Rooms import downwards only"),
        ("secret.scrub", "store.port", "Rooms import downwards only"),
        ("store.port", "store.sqlite.store", "The store port knows no adapter, adapters know no other adapter"),
        (
            "store.sqlite.store",
            "store.postgres.store",
            "The store port knows no adapter, adapters know no other adapter",
        ),
        ("engine.run", "duty.rota", "Rooms import downwards only"),
        ("lint.reach", "engine.run", "The linter reads source and needs nothing else of ours"),
        ("cli.ps", "lint.reach", "The command line goes through app"),
        ("engine.run", "store.postgres.store", "Only app and testing name a concrete adapter"),
        ("engine.run", "store.sqlite.store", "Only app and testing name a concrete adapter"),
        ("cli.ps", "engine.run", "The command line goes through app"),
        ("app.compose", "testing.lab", "Nothing in production imports testing"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(tmp_path: Path, importer: str, imported: str, contract: str) -> None:
    done = lint(tmp_path, {**MODULES, importer: f"{MODULES[importer]}\nimport outlive.{imported}"})
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{contract} BROKEN" in done.stdout


def test_a_room_without_a_place_is_refused(tmp_path: Path) -> None:
    done = lint(tmp_path, {**MODULES, "utils.text": ""})
    assert done.returncode == 1
    assert "utils" in done.stdout
