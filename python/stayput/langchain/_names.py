"""Unique tool names for models."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from .._types import Tool

MAX_NAME_LENGTH = 64
"""Maximum length that all providers accept. They accept letters, digits, `_` and `-`."""


def unique_names(tools: Sequence[Tool], *, prefix: bool = False, separator: str = "__") -> list[str]:
    """Returns a unique name for each tool that every provider accepts.

    A tool keeps its name on the server. If two servers have a tool of the same name, or with `prefix`, the name of the
    server comes first, and `separator`. A name that is too long or still taken ends in a hash of server and tool, which is the same in
    every process.

    >>> def tool(server, name):
    ...     return Tool.from_json(server, '{"name": "%s"}' % name)
    >>> unique_names([tool("web", "search"), tool("files", "search"), tool("web", "open.page")])
    ['web__search', 'files__search', 'open_page']
    >>> [len(name) for name in unique_names([tool("web", "x" * 100)])]
    [64]
    """
    servers: dict[str, set[str]] = {}
    for tool in tools:
        servers.setdefault(_sanitize(tool.name), set()).add(tool.server)
    wanted = [
        f"{tool.server}{separator}{tool.name}" if prefix or len(servers[_sanitize(tool.name)]) > 1 else tool.name for tool in tools
    ]
    # Tools whose names need no change are named first.
    chosen: dict[int, str] = {}
    taken = set[str]()
    for at in sorted(range(len(tools)), key=lambda at: (_sanitize(wanted[at]) != wanted[at], at)):
        name = _sanitize(wanted[at])
        if name in taken or len(wanted[at]) > MAX_NAME_LENGTH:
            name = _add_hash(name, tools[at])
        taken.add(name)
        chosen[at] = name
    return [chosen[at] for at in range(len(tools))]


def _sanitize(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:MAX_NAME_LENGTH] or "tool"


def _add_hash(name: str, tool: Tool) -> str:
    digest = hashlib.sha256(f"{tool.server}\0{tool.name}".encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_LENGTH - len(digest) - 1]}_{digest}"
