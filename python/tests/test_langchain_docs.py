"""Runs docs/langchain.md from top to bottom."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from agents import Agent, Step, agent, user_message
from conftest import TEST_TIMEOUT, program
from langchain_core.tools import BaseTool
from pages import DOCS, examples, run

PAGE = DOCS / "langchain.md"

STEPS: dict[str, list[Step]] = {
    "Write down: buy milk": [[("note_add", {"text": "buy milk"})]],
    "What did I write down?": [[("note_list", {})]],
}


class FakeAgent:
    """Replaces an agent of `langchain`; its model knows two messages."""

    def __init__(self, model: object, tools: Sequence[BaseTool], checkpointer: object = None) -> None:
        self._graph: Agent = agent(tools)

    async def ainvoke(self, asked: dict[str, str], config: Any = None) -> Any:
        config = config or {"configurable": {"thread_id": "any"}}
        return await self._graph.ainvoke(user_message(*STEPS[asked["messages"]]), config)


class FakeWebFramework:
    """Replaces a web framework."""

    def post(self, path: str) -> Callable[[Any], Any]:
        return lambda function: function


def test_langchain_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(program()).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    agents = ModuleType("langchain.agents")
    agents.__dict__["create_agent"] = FakeAgent
    monkeypatch.setitem(sys.modules, "langchain", ModuleType("langchain"))
    monkeypatch.setitem(sys.modules, "langchain.agents", agents)
    (config,) = examples(PAGE, "json")
    (tmp_path / "mcp.json").write_text(json.dumps(json.loads(config)))
    pieces = examples(PAGE)
    names: dict[str, Any] = {"model": None, "app": FakeWebFramework()}

    async def main() -> None:
        for piece in pieces:
            await run(PAGE, piece, names)
        await names["hub"].close()
        await names["client"].aclose()
        names["blocking"].close()

    assert len(pieces) > 6
    asyncio.run(main())


def test_first_program_of_the_langchain_page_runs(tmp_path: Path) -> None:
    """The whole program prints what the page says."""
    source, printed = re.findall(r"^```(?:python|text) agent\.py\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (config,) = examples(PAGE, "json")
    (tmp_path / "mcp.json").write_text(config)
    env = {**os.environ, "PATH": f"{Path(program()).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=TEST_TIMEOUT
    )
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr
