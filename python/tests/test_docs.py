"""Runs the examples of the documentation."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TEST_TIMEOUT, Kit, program
from pages import DOCS, examples, run

import stayput
from stayput import sync

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(stayput.__path__, "stayput.")
    # Importing the first would replace this process by the program; `make frameworks` runs the last.
    if name not in ("stayput.__main__", "stayput._core", "stayput.openai_agents")
]
NOTEBOOK = {"mcpServers": {"notes": {"command": "stayput", "args": ["demo-server"]}}}


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`notebook()` in an example is a hub with the demo server."""
    monkeypatch.setenv("PATH", f"{Path(program()).parent}{os.pathsep}{os.environ['PATH']}")
    hub: Callable[[Any], object] = sync.Hub.from_config if name.startswith("stayput.sync.") else stayput.Hub.from_config
    names = {"asyncio": asyncio, "notebook": lambda: hub(NOTEBOOK)}
    module = importlib.import_module(name)
    done = doctest.testmod(module, extraglobs=names)
    assert done.failed == 0
    # Every block that looks like an example was found.
    assert done.attempted == len(re.findall(r"^ *>>> ", inspect.getsource(module), re.MULTILINE))


def test_main_classes_have_examples() -> None:
    for it in [stayput.Hub.from_config, stayput.Hub.session, stayput.Hub.run, stayput.Hub.call, sync.Hub.call]:
        assert ">>> " in (it.__doc__ or "")


@pytest.mark.parametrize("kind", [stayput.Hub, stayput.Session])
def test_every_public_method_is_documented(kind: type) -> None:
    page = (DOCS / "python.md").read_text()
    public = [name for name in dir(kind) if not name.startswith("_")]
    assert [name for name in public if not re.search(rf"\b{name}\b", page)] == []


def test_every_error_is_documented() -> None:
    page = (DOCS / "python.md").read_text()
    errors = [name for name in stayput.__all__ if name.endswith("Error")]
    assert len(errors) > 15
    assert [name for name in errors if f"`{name}`" not in page and f"`stayput.{name}`" not in page] == []


def test_every_keeper_method_is_documented() -> None:
    page = (DOCS / "python.md").read_text()
    methods = [name for name in vars(stayput.SessionIdKeeper) if not name.startswith("_")]
    assert sorted(methods) == ["clear", "load", "save"]
    assert [name for name in methods if f"def {name}(" not in page] == []


def test_readme_example_runs() -> None:
    """The quickstart of README.md, with the program of the wheel on the path."""
    env = {**os.environ, "PATH": f"{Path(program()).parent}{os.pathsep}{os.environ['PATH']}"}
    (quickstart,) = examples(DOCS.parent / "README.md")
    done = subprocess.run([sys.executable, "-c", quickstart], env=env, capture_output=True, text=True, timeout=TEST_TIMEOUT)
    assert (done.stdout, done.returncode) == ("Note 1 is written.\n", 0), done.stderr


def test_python_page_runs(kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/python.md, with a browser that records its calls."""
    page = DOCS / "python.md"
    monkeypatch.setenv("PATH", f"{Path(program()).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    server = str(Path(__file__).parent / "odd_server.py")
    browser = {"command": sys.executable, "args": [server], "env": {"TOKEN": kit.marker}}
    Path("mcp.json").write_text(json.dumps({"mcpServers": {"browser": browser, "notes": browser}}))
    names, hubs = dict[str, Any](), list[stayput.Hub]()

    async def research(what: str) -> None:
        if what == "b":
            with pytest.raises(stayput.AccessDeniedError):
                await names["hub"].call("notes", "note_list")
        await names["hub"].call("browser", "count")

    names["research"] = research

    async def main() -> None:
        for piece in examples(page):
            await run(page, piece, names)
            if isinstance(names["hub"], stayput.Hub) and names["hub"] not in hubs:
                hubs.append(names["hub"])
        names["hub"] = hubs[0]
        assert await names["handle"]("chat-42", "x") == '{"browser_navigate": {"url": "x"}}'
        assert await names["agent"]("x") == '{"browser_snapshot": {}}'
        for hub in hubs:
            await hub.close()

    asyncio.run(main())
    assert len(hubs) == 3
