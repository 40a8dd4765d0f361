"""What a call costs from Python, of this build for one of another: `builds.py SERVER OTHER`, where OTHER is the Python of an
environment with the other build.

Runs `calls.py` of each in turns, and compares the medians of calls on a held session.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

PAIRS, TARGET = 5, 1.05
CALLS = Path(__file__).with_name("calls.py")


def costs(python: str, server: str) -> list[tuple[str, float]]:
    """Microseconds of each kind of call, in the order in which they are printed."""
    text = subprocess.run([python, CALLS, server], stdout=subprocess.PIPE, text=True, check=False).stdout
    found = list[tuple[str, float]]()
    part = ""
    for line in text.splitlines():
        if not line.startswith("  "):
            part = line.split(",")[0].split(" over")[0]
        elif line.strip().startswith("stayput"):
            found.append((f"{part}: {line[2:46].strip()}", float(line[46:57])))
    assert found, text
    return found


def main() -> int:
    server, other = sys.argv[1:]
    ratios: dict[str, list[float]] = {}
    for pair in range(PAIRS):
        # Who is first in one pair is last in the next.
        order = [sys.executable, other] if pair % 2 == 0 else [other, sys.executable]
        took = {python: costs(python, server) for python in order}
        for (name, ours), (_, theirs) in zip(took[sys.executable], took[other], strict=True):
            ratios.setdefault(name, []).append(ours / theirs)
    print(f"A call from Python, of this build for one of the other: median of {PAIRS} pairs")
    missed = 0
    for name, values in ratios.items():
        ratio = statistics.median(values)
        missed += ratio > TARGET
        print(f"  {name:<56} {ratio:8.3f}   target {TARGET}: {'met' if ratio <= TARGET else 'MISSED'}")
    return 1 if missed else 0


sys.exit(main())
