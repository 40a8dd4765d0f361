"""What models call tools by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from .._types import Tool

LONGEST = 64
"""How long a name may be for all providers; they take letters, digits, `_` and `-`."""


def names(tools: Sequence[Tool], *, prefix: bool = False) -> list[str]:
    """A name for each tool that every provider takes, and no other one has.

    A tool is called what its server calls it. Where two servers have one of the same name, or with `prefix`, the name
    of the server stands before it. What is too long, or taken still, ends in a hash of both names, which is the same in
    every process.

    >>> def tool(server, name):
    ...     return Tool.of(server, '{"name": "%s"}' % name)
    >>> names([tool("web", "search"), tool("files", "search"), tool("web", "open.page")])
    ['web__search', 'files__search', 'open_page']
    >>> [len(name) for name in names([tool("web", "x" * 100)])]
    [64]
    """
    homes: dict[str, set[str]] = {}
    for tool in tools:
        homes.setdefault(_fitting(tool.name), set()).add(tool.server)
    wanted = [
        f"{tool.server}__{tool.name}" if prefix or len(homes[_fitting(tool.name)]) > 1 else tool.name for tool in tools
    ]
    # Who is called so already goes first.
    chosen: dict[int, str] = {}
    taken = set[str]()
    for at in sorted(range(len(tools)), key=lambda at: (_fitting(wanted[at]) != wanted[at], at)):
        name = _fitting(wanted[at])
        if name in taken or len(wanted[at]) > LONGEST:
            name = _hashed(name, tools[at])
        taken.add(name)
        chosen[at] = name
    return [chosen[at] for at in range(len(tools))]


def _fitting(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:LONGEST] or "tool"


def _hashed(name: str, tool: Tool) -> str:
    mark = hashlib.sha256(f"{tool.server}\0{tool.name}".encode()).hexdigest()[:8]
    return f"{name[: LONGEST - len(mark) - 1]}_{mark}"
