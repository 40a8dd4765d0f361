"""What the documentation shows runs."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import program

import stayput
from stayput import sync

MODULES = [
    "stayput._errors",
    "stayput._types",
    "stayput._hub",
    "stayput.sync",
    "stayput.langchain._blocks",
    "stayput.langchain._client",
    "stayput.langchain._connections",
    "stayput.langchain._names",
    "stayput.langchain._tools",
]
NOTEBOOK = {"mcpServers": {"notes": {"command": "stayput", "args": ["demo-server"]}}}


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`notebook()` in an example is a hub with the demo server."""
    monkeypatch.setenv("PATH", f"{Path(program()).parent}{os.pathsep}{os.environ['PATH']}")
    hub: Callable[[Any], object] = sync.Hub.from_config if name == "stayput.sync" else stayput.Hub.from_config
    names = {"asyncio": asyncio, "notebook": lambda: hub(NOTEBOOK)}
    done = doctest.testmod(importlib.import_module(name), extraglobs=names)
    assert done.attempted > 0 and done.failed == 0
