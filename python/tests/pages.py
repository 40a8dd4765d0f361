"""Examples of documentation pages, run from top to bottom."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent.parent / "docs"


def examples(page: Path, language: str = "python") -> list[str]:
    """Returns the examples of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


async def run(page: Path, source: str, names: dict[str, Any]) -> None:
    """Runs an example, which may contain `await`."""
    done = eval(compile(source, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.isawaitable(done):
        await done
