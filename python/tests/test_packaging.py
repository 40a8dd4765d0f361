"""The wheel: its program, its types, and nothing that it needs beside."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from importlib.resources import files

from conftest import LONG, program, script


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG)


def test_the_program_is_the_whole_gateway() -> None:
    version = importlib.metadata.version("stayput")
    assert run(program(), "--version").stdout.strip() == f"stayput {version}"
    assert run(sys.executable, "-m", "stayput", "--version").stdout.strip() == f"stayput {version}"
    made = json.loads(run(program(), "token", "ann", "--json").stdout)
    assert made["hash"].startswith("sha256:")
    assert "serve" in run(program(), "--help").stdout


def test_its_story_is_told() -> None:
    """It starts gateways, daemons and wardens of itself, so it finds itself."""
    told = run(program(), "demo", "--json")
    assert told.returncode == 0, told.stdout + told.stderr


def test_the_wheel_needs_nothing_beside_python() -> None:
    needs = importlib.metadata.requires("stayput") or []
    assert all("extra ==" in need for need in needs), needs
    imported = "import sys, stayput, stayput.sync; print([n for n in sys.modules if n.startswith('lang')])"
    assert script(imported).stdout == "[]\n"


def test_it_is_typed() -> None:
    assert files("stayput").joinpath("py.typed").is_file()
    assert files("stayput").joinpath("_core.pyi").is_file()
