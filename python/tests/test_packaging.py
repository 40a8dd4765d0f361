"""The wheel: its program, its types, its dependencies."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
from importlib.resources import files
from pathlib import Path

from conftest import TEST_TIMEOUT, program, script

import stayput


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=TEST_TIMEOUT)


def test_wheel_contains_the_gateway() -> None:
    version = importlib.metadata.version("stayput")
    assert stayput.__version__ == version
    assert run(program(), "--version").stdout.strip() == f"stayput {version}"
    assert run(sys.executable, "-m", "stayput", "--version").stdout.strip() == f"stayput {version}"
    made = json.loads(run(program(), "token", "ann", "--json").stdout)
    assert made["hash"].startswith("sha256:")
    assert "serve" in run(program(), "--help").stdout


def test_tour_runs() -> None:
    """It starts gateways, daemons and wardens from its own file."""
    result = run(program(), "demo", "--json")
    assert result.returncode == 0, result.stdout + result.stderr


def test_wheel_has_no_dependencies() -> None:
    needs = importlib.metadata.requires("stayput") or []
    assert all("extra ==" in need for need in needs), needs
    imported = "import sys, stayput, stayput.sync; print([n for n in sys.modules if n.startswith('lang')])"
    assert script(imported).stdout == "[]\n"


def test_wheel_is_typed() -> None:
    assert files("stayput").joinpath("py.typed").is_file()
    assert files("stayput").joinpath("_core.pyi").is_file()


def test_source_archive_is_complete(tmp_path: Path) -> None:
    """It contains all that cargo reads, and no owner."""
    python = Path(__file__).parent.parent
    making = "import sys, build_backend; build_backend.build_sdist(sys.argv[1])"
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-c", making, str(tmp_path)]
    made = subprocess.run(command, cwd=python, env=env, capture_output=True, text=True, timeout=TEST_TIMEOUT)
    assert made.returncode == 0, made.stderr
    whole = f"stayput-{importlib.metadata.version('stayput')}"
    with tarfile.open(tmp_path / f"{whole}.tar.gz") as archive:
        assert {(entry.uid, entry.uname, entry.mtime) for entry in archive} == {(0, "", 0)}
        archive.extractall(tmp_path, filter="data")
    root = tmp_path / whole
    about = (root / "PKG-INFO").read_text()
    assert "Name: stayput\n" in about and "Provides-Extra: langgraph\n" in about
    reading = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
    known = run(*reading, "--manifest-path", str(root / "python" / "Cargo.toml"))
    assert known.returncode == 0, known.stderr
    here = [Path(it["manifest_path"]) for it in json.loads(known.stdout)["packages"] if it["source"] is None]
    assert root / "crates" / "gateway" / "Cargo.toml" in here
    for source in root.rglob("*.rs"):
        for name in re.findall(r'include_(?:str|bytes)!\("(.+?)"\)', source.read_text()):
            assert (source.parent / name).is_file(), f"{source} has {name}"
