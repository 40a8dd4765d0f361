"""Conversion of MCP tools to LangChain tools."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.tools import BaseTool

from .._types import Tool
from ._names import unique_names
from ._resolver import AnyCalls, Key, SessionResolver
from ._tool import CallWrapping, SessionTool


def as_tools(
    calls: AnyCalls,
    tools: Sequence[Tool],
    *,
    key: Key | None = None,
    prefix: bool = False,
    handle_errors: bool = True,
) -> list[BaseTool]:
    """Converts listed tools to LangChain tools, without a request to a server. `langchain_tools` of hubs and sessions
    lists the tools and calls this.

    >>> from stayput import Hub, Tool
    >>> hub = Hub.from_config({"mcpServers": {"notes": {"command": "stayput", "args": ["demo-server"]}}})
    >>> stored = Tool.from_json("notes", '{"name": "note.add", "inputSchema": {"type": "object"}}')
    >>> [tool.name for tool in as_tools(hub, [stored], key="thread_id")]
    ['note_add']
    """
    return build_tools(SessionResolver(calls, key), tools, prefix=prefix, handle_errors=handle_errors)


def build_tools(
    resolver: SessionResolver,
    tools: Sequence[Tool],
    *,
    prefix: bool,
    handle_errors: bool,
    separator: str = "__",
    wrapping: CallWrapping | None = None,
) -> list[BaseTool]:
    """Creates tools whose calls use a resolver."""
    named = zip(tools, unique_names(tools, prefix=prefix, separator=separator))
    return [
        SessionTool.from_tool(tool, name, resolver, handle_errors=handle_errors, wrapping=wrapping) for tool, name in named
    ]
