"""Build backend: builds the program `stayput`, copies it to where maturin packs it, and calls maturin."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import archive
import maturin
from maturin import get_requires_for_build_editable as get_requires_for_build_editable
from maturin import get_requires_for_build_sdist as get_requires_for_build_sdist
from maturin import get_requires_for_build_wheel as get_requires_for_build_wheel
from maturin import prepare_metadata_for_build_editable as prepare_metadata_for_build_editable
from maturin import prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel

HERE = Path(__file__).parent
GATEWAY = HERE.parent / "crates" / "gateway" / "Cargo.toml"
SCRIPTS = HERE / "stayput.data" / "scripts"
# maturin requires the folder even when it only reads the metadata.
SCRIPTS.mkdir(parents=True, exist_ok=True)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    copy_program()
    name: str = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    return name


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    copy_program()
    name: str = maturin.build_editable(wheel_directory, config_settings, metadata_directory)
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    if not GATEWAY.exists():
        raise RuntimeError("a source archive can only be built in a checkout")
    return archive.write(sdist_directory)


def copy_program() -> None:
    """Builds the program in the profile of the wheel, or uses the file of STAYPUT_PROGRAM, and copies it."""
    given = os.environ.get("STAYPUT_PROGRAM")
    program = Path(given) if given else build_program(profile())
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    # Replaced at once, because another build may be reading the old file.
    temporary = SCRIPTS / f".stayput.{os.getpid()}"
    shutil.copy2(program, temporary)
    if "--strip" in pep517_args() or profile() == "release":
        subprocess.run(["strip", str(temporary)], check=False)
    temporary.replace(SCRIPTS / "stayput")


def build_program(profile: str) -> Path:
    if not GATEWAY.exists():
        raise RuntimeError(
            "the sources of the program `stayput` are missing: build the archive with `python -m build --sdist ./python`, "
            "not with `maturin sdist`, which leaves them out"
        )
    command = ["cargo", "build", "--locked", "--manifest-path", str(GATEWAY)]
    command += ["--bin", "stayput", "--profile", profile, "--message-format", "json-render-diagnostics"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=sys.stderr).stdout
    for line in output.splitlines():
        program = json.loads(line).get("executable")
        if program:
            return Path(program)
    raise RuntimeError("cargo built no program")


def pep517_args() -> list[str]:
    return shlex.split(os.environ.get("MATURIN_PEP517_ARGS", ""))


def profile() -> str:
    words = pep517_args()
    return words[words.index("--profile") + 1] if "--profile" in words else "release"
