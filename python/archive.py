"""Source archive, from which pip can build a wheel with Rust and without a checkout.

The archive of maturin would contain the sources of the native half, but not those of the program `stayput`. So this one
contains the whole workspace, and at its root the settings of this folder with adjusted paths.
"""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import maturin

ROOT = Path(__file__).parent.parent

# Files and folders that the build needs; crates include files of `docs`.
INCLUDED = ["Cargo.toml", "Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "bench", "crates", "docs", "python"]
EXCLUDED = {"target", "node_modules", "__pycache__", "stayput.data"}

# Relative paths in the settings.
PATH_REPLACEMENTS = [
    (r'^backend-path = \["\."\]$', 'backend-path = ["python"]'),
    (r'^readme = "', 'readme = "python/'),
    (r'^data = "', 'data = "python/'),
    (r"^\[tool\.maturin\]$", '[tool.maturin]\nmanifest-path = "python/Cargo.toml"\npython-source = "python"'),
]


def write(folder: str) -> str:
    """Writes the archive into a folder, and returns its file name."""
    package_info = metadata()
    version = re.search(r"^Version: (.+)$", package_info, re.MULTILINE)
    if version is None:
        raise RuntimeError("maturin returned no version")
    root = f"stayput-{version[1]}"
    path = Path(folder) / f"{root}.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for file in files():
            archive.add(file, f"{root}/{file.relative_to(ROOT)}", filter=reset_owner)
        for name, text in [("pyproject.toml", settings()), ("PKG-INFO", package_info)]:
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, BytesIO(text.encode()))
    return path.name


def files() -> Iterator[Path]:
    """Yields all files of the archive in a stable order."""
    for path in (ROOT / name for name in INCLUDED):
        if path.is_file():
            yield path
        for file in sorted(path.rglob("*")):
            parts = file.relative_to(ROOT).parts
            if file.is_file() and not EXCLUDED.intersection(parts) and not any(it.startswith(".") for it in parts):
                yield file


def reset_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes owner and time, so that the archive is reproducible."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def settings() -> str:
    """Returns the settings of this folder, with paths relative to the root of the archive."""
    text = (ROOT / "python" / "pyproject.toml").read_text()
    for pattern, replacement in PATH_REPLACEMENTS:
        text, found = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        if found != 1:
            raise RuntimeError(f"pyproject.toml has no line like {pattern}")
    return text


def metadata() -> str:
    """Returns the metadata of the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        name: str = maturin.prepare_metadata_for_build_wheel(folder)
        return (Path(folder) / name / "METADATA").read_text()
