"""The connections of `langchain-mcp-adapters`, as a configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .._errors import ConfigError

_KINDS = {
    "stdio": "stdio",
    "streamable_http": "http",
    "streamable-http": "http",
    "http": "http",
    "sse": "sse",
}

# How long is waited, and how a process is spoken to, is for Stayput to know.
_PASSED_OVER = {"timeout", "sse_read_timeout", "terminate_on_close", "encoding", "encoding_error_handler"}

_TAKEN = {
    "stdio": ("command", "args", "env", "cwd"),
    "http": ("url", "headers"),
    "sse": ("url", "headers"),
}


def config(connections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The same servers as `mcpServers`.

    >>> config({"math": {"transport": "streamable_http", "url": "http://127.0.0.1:8000/mcp", "timeout": 5}})
    {'mcpServers': {'math': {'type': 'http', 'url': 'http://127.0.0.1:8000/mcp'}}}
    """
    return {"mcpServers": {name: _entry(name, connection) for name, connection in connections.items()}}


def _entry(name: str, connection: Mapping[str, Any]) -> dict[str, Any]:
    kind = _kind(name, connection)
    taken = (*_TAKEN[kind], "stayput", "disabled")
    given = {key: value for key, value in connection.items() if value is not None and value != {}}
    unknown = sorted(set(given) - set(taken) - _PASSED_OVER - {"transport"})
    if unknown:
        raise ConfigError(
            f"the connection `{name}` has `{unknown[0]}`, which cannot be taken over; "
            f"a `{connection.get('transport', kind)}` connection has {', '.join(_TAKEN[kind])}"
        )
    entry = {"type": kind, **{key: given[key] for key in taken if key in given}}
    if "cwd" in entry:
        # Of the program, not of a file.
        entry["cwd"] = os.path.abspath(entry["cwd"])
    return entry


def _kind(name: str, connection: Mapping[str, Any]) -> str:
    said = connection.get("transport") or ("stdio" if "command" in connection else "http")
    kind = _KINDS.get(str(said))
    if kind is None:
        raise ConfigError(f"the connection `{name}` has the transport `{said}`; there are: stdio, streamable_http, sse")
    return kind
