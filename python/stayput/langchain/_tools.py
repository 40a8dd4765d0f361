"""Tools of servers for LangChain."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.tools import BaseTool

from .._types import Tool
from ._names import names
from ._place import AnyCalls, Key, Place
from ._tool import SessionTool


def as_tools(
    calls: AnyCalls,
    tools: Sequence[Tool],
    *,
    key: Key | None = None,
    prefix: bool = False,
    handle_errors: bool = True,
) -> list[BaseTool]:
    """Tools for LangChain, out of those that a server has or had: no server is asked. `langchain_tools` of hubs and
    sessions lists them and does the rest by this.

    >>> from stayput import Hub, Tool
    >>> hub = Hub.from_config({"mcpServers": {"notes": {"command": "stayput", "args": ["demo-server"]}}})
    >>> stored = Tool.of("notes", '{"name": "note.add", "inputSchema": {"type": "object"}}')
    >>> [tool.name for tool in as_tools(hub, [stored], key="thread_id")]
    ['note_add']
    """
    return placed(Place(calls, key), tools, prefix=prefix, handle_errors=handle_errors)


def placed(place: Place, tools: Sequence[Tool], *, prefix: bool, handle_errors: bool) -> list[BaseTool]:
    """Tools whose calls go to a place."""
    named = zip(tools, names(tools, prefix=prefix))
    return [SessionTool.of(tool, name, place, handle_errors=handle_errors) for tool, name in named]
