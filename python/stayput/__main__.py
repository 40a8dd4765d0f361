"""`python -m stayput` runs the program `stayput`, which is part of the wheel."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def program() -> Path:
    """Finds the program."""
    folders = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", scheme=f"{os.name}_user"),
        # Installed with `--target`, or inside another package.
        str(Path(__file__).parent.parent / "bin"),
        str(Path(sys.executable).parent),
    ]
    for folder in folders:
        path = Path(folder) / "stayput"
        if path.is_file():
            return path
    raise FileNotFoundError(f"the program `stayput` is in none of {', '.join(folders)}: install the wheel again")


def main() -> None:
    """Replaces this process by the program."""
    path = os.fspath(program())
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
