"""Prints the licences of all crates that the program `stayput` is linked with, each text once."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path

PACKAGE = "stayput-gateway"
TEXTS = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "UNLICENSE*")


def linked() -> list[dict]:
    """Returns the packages of others that the program depends on, without build and test dependencies."""
    host = next(line[6:] for line in run("rustc", "-vV").splitlines() if line.startswith("host: "))
    graph = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host))
    packages = {package["id"]: package for package in graph["packages"]}
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    waiting = [id for id, package in packages.items() if package["name"] == PACKAGE]
    found = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if normal and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                waiting.append(dependency["pkg"])
    others = (packages[id] for id in found if packages[id]["source"])
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    texts = defaultdict(list)
    print("Crates that the program `stayput` contains, and their licences.\n")
    for package in linked():
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or 'see its text'}")
        folder = Path(package["manifest_path"]).parent
        for file in sorted({file for pattern in TEXTS for file in folder.glob(pattern) if file.is_file()}):
            texts[file.read_text(errors="replace").strip()].append(name)
    for text, names in texts.items():
        print(f"\n{'=' * 80}\n{', '.join(dict.fromkeys(names))}\n{'=' * 80}\n\n{text}")


main()
