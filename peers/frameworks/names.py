"""Compares the names of docs/frameworks.md with the packages that they come from, and the drop-in with the original."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

PACKAGES = {
    "langchain-mcp-adapters": "langchain-mcp-adapters",
    "MCPStore": "mcpstore",
    "Kiln": "kiln-ai",
    "UiPath": "uipath-langchain",
}
PAGE = Path(sys.argv[3]) / "docs" / "frameworks.md"


def source(package: str) -> str:
    """The Python source of an installed package."""
    files = importlib.metadata.files(package) or []
    return "\n".join(Path(str(file.locate())).read_text() for file in files if file.suffix == ".py")


def named(cell: str) -> list[str]:
    """The names in the code of a cell, without arguments."""
    codes = re.findall(r"`([^`]+)`", cell)
    return [name for code in codes for name in re.findall(r"[A-Za-z_]{3,}", re.sub(r"\(.*?\)", "", code))]


def main() -> None:
    _, table = PAGE.read_text().split("\n## Names from other libraries\n")
    found, missing, texts = 0, list[str](), dict[str, str]()
    package = ""
    for line in table.splitlines():
        if not line.startswith("|"):
            continue
        first = line.split("|")[1].strip()
        if (title := re.match(r"\*\*([A-Za-z-]+)", first)) is not None:
            package = PACKAGES[title.group(1)]
            texts[package] = source(package)
            continue
        for name in named(first):
            found += 1
            if not re.search(rf"\b(?:def|class)\s+{name}\b|\b{name}\s*[:=]", texts[package]):
                missing.append(f"{package}: {name}")
    assert texts.keys() == set(PACKAGES.values()) and found > 30, found
    assert not missing, missing
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in texts)
    print(f"names: {found} names of the table are in {versions}")


main()
