"""`python -m stayput` is the program `stayput`, which the wheel brings along."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def program() -> Path:
    """Where the program is."""
    places = [
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", scheme=f"{os.name}_user"),
        # Installed with `--target`, or as a part of something else.
        str(Path(__file__).parent.parent / "bin"),
        str(Path(sys.executable).parent),
    ]
    for place in places:
        found = Path(place) / "stayput"
        if found.is_file():
            return found
    raise FileNotFoundError(f"the program `stayput` is in none of {', '.join(places)}: install the wheel again")


def main() -> None:
    """Becomes the program."""
    path = os.fspath(program())
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
