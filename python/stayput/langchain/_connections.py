"""Conversion of `langchain-mcp-adapters` connections to a configuration."""

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

# Timeouts and encodings are settings of Stayput instead.
_IGNORED_KEYS = {"timeout", "sse_read_timeout", "terminate_on_close", "encoding", "encoding_error_handler"}

_SUPPORTED_KEYS = {
    "stdio": ("command", "args", "env", "cwd"),
    "http": ("url", "headers"),
    "sse": ("url", "headers"),
}


# Objects of Python, which are no part of the configuration.
_OBJECT_KEYS: dict[str, set[str]] = {"stdio": set(), "http": {"auth"}, "sse": {"auth"}}


def to_config(connections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Converts connections to `mcpServers`.

    >>> to_config({"math": {"transport": "streamable_http", "url": "http://127.0.0.1:8000/mcp", "timeout": 5}})
    {'mcpServers': {'math': {'type': 'http', 'url': 'http://127.0.0.1:8000/mcp'}}}
    """
    return {"mcpServers": {name: _entry(name, connection) for name, connection in connections.items()}}


def _entry(name: str, connection: Mapping[str, Any]) -> dict[str, Any]:
    kind = _kind(name, connection)
    taken = (*_SUPPORTED_KEYS[kind], "stayput", "disabled")
    given = {key: value for key, value in connection.items() if value is not None and value != {}}
    unknown = sorted(set(given) - set(taken) - _IGNORED_KEYS - {"transport"} - _OBJECT_KEYS[kind])
    if unknown:
        raise ConfigError(
            f"the connection `{name}` has `{unknown[0]}`, which is not supported; "
            f"a `{connection.get('transport', kind)}` connection has {', '.join([*_SUPPORTED_KEYS[kind], *_OBJECT_KEYS[kind]])}"
        )
    entry = {"type": kind, **{key: given[key] for key in taken if key in given}}
    if "cwd" in entry:
        # Relative to the working directory of the program, not to a configuration file.
        entry["cwd"] = os.path.abspath(entry["cwd"])
    return entry


def _kind(name: str, connection: Mapping[str, Any]) -> str:
    transport = connection.get("transport") or ("stdio" if "command" in connection else "http")
    kind = _KINDS.get(str(transport))
    if kind is None:
        raise ConfigError(f"the connection `{name}` has the transport `{transport}`; there are: stdio, streamable_http, sse")
    return kind
