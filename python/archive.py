"""The archive of sources that pip can build a wheel from, with Rust and without a checkout.

maturin's own one would have what the native half is made of, and not the program `stayput`. So this one has the whole
workspace, laid out as here, and over it the settings of this folder, to be read from there.
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

# What the workspace is built of; what it shows of itself, which is part of it, is in docs.
KEPT = ["Cargo.toml", "Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "bench", "crates", "docs", "python"]
LEFT_OUT = {"target", "node_modules", "__pycache__", "stayput.data"}

# Everything in the settings that is relative to their folder.
PLACES = [
    (r'^backend-path = \["\."\]$', 'backend-path = ["python"]'),
    (r'^readme = "', 'readme = "python/'),
    (r'^data = "', 'data = "python/'),
    (r"^\[tool\.maturin\]$", '[tool.maturin]\nmanifest-path = "python/Cargo.toml"\npython-source = "python"'),
]


def write(folder: str) -> str:
    """Writes it into a folder; its name."""
    about = metadata()
    version = re.search(r"^Version: (.+)$", about, re.MULTILINE)
    if version is None:
        raise RuntimeError("maturin knows no version")
    whole = f"stayput-{version[1]}"
    path = Path(folder) / f"{whole}.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for file in files():
            archive.add(file, f"{whole}/{file.relative_to(ROOT)}", filter=anonymous)
        for name, text in [("pyproject.toml", settings()), ("PKG-INFO", about)]:
            entry = tarfile.TarInfo(f"{whole}/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, BytesIO(text.encode()))
    return path.name


def files() -> Iterator[Path]:
    """All files of it, in an order that does not change."""
    for kept in (ROOT / name for name in KEPT):
        if kept.is_file():
            yield kept
        for file in sorted(kept.rglob("*")):
            parts = file.relative_to(ROOT).parts
            if file.is_file() and not LEFT_OUT.intersection(parts) and not any(it.startswith(".") for it in parts):
                yield file


def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without whose it is and since when."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def settings() -> str:
    """The settings of this folder, as they are read from the one above."""
    text = (ROOT / "python" / "pyproject.toml").read_text()
    for pattern, replacement in PLACES:
        text, found = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        if found != 1:
            raise RuntimeError(f"pyproject.toml has no line like {pattern}")
    return text


def metadata() -> str:
    """What the wheel will say of itself."""
    with tempfile.TemporaryDirectory() as folder:
        name: str = maturin.prepare_metadata_for_build_wheel(folder)
        return (Path(folder) / name / "METADATA").read_text()
