"""Replacement of the client of `langchain-mcp-adapters` that keeps the state of servers."""

from __future__ import annotations

import base64
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from langchain_core.documents.base import Blob
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool

from .._errors import InvalidInputError
from .._async import Hub, Session
from .._types import Prompt, Resource, Tool, ToolResult
from ._auth import auth_headers
from ._blocks import content_block
from ._connections import to_config
from ._interceptors import Callbacks, ToolCallInterceptor, elicitation_handler
from ._resolver import Key, SessionResolver
from ._tool import CallWrapping
from ._tools import build_tools


class ServerSession:
    """Session on one server, see `MultiServerMCPClient.session`."""

    def __init__(self, session: Session, server: str) -> None:
        self.session = session
        """The session, which can also have links to other servers."""
        self.server = server
        """The server."""

    async def initialize(self) -> None:
        """Opens the link to the server before the first call."""
        await self.session.bind(self.server)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Calls a tool."""
        return await self.session.call(self.server, name, arguments)

    async def list_tools(self) -> list[Tool]:
        """Lists the tools of the server."""
        return await self.session.tools(self.server)

    async def list_prompts(self) -> list[Prompt]:
        """Lists the prompts of the server."""
        return await self.session.prompts(self.server)

    async def list_resources(self) -> list[Resource]:
        """Lists the resources of the server."""
        return await self.session.resources(self.server)

    async def get_prompt(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Gets a prompt; `data` of the result has the messages."""
        return await self.session.prompt(self.server, name, arguments)

    async def read_resource(self, uri: str) -> ToolResult:
        """Reads a resource; `data` of the result has the contents."""
        return await self.session.read(self.server, str(uri))


async def load_mcp_tools(
    session: ServerSession,
    *,
    callbacks: Callbacks | None = None,
    tool_interceptors: Sequence[ToolCallInterceptor] | None = None,
    tool_name_prefix: bool = False,
    handle_tool_errors: bool = True,
) -> list[BaseTool]:
    """Lists the tools of a server, bound to a session on it."""
    resolver, wrapping = SessionResolver(session.session), _wrapping(callbacks, tool_interceptors)
    listed = await session.list_tools()
    errors = handle_tool_errors
    return build_tools(
        resolver, listed, prefix=tool_name_prefix, handle_errors=errors, separator=_SEPARATOR, wrapping=wrapping
    )


async def load_mcp_resources(session: ServerSession, *, uris: str | Sequence[str] | None = None) -> list[Blob]:
    """Reads resources of a server: those with these URIs, or all."""
    wanted = [uris] if isinstance(uris, str) else uris
    if wanted is None:
        wanted = [resource.uri for resource in await session.list_resources()]
    return [_blob(content) for uri in wanted for content in _items(await session.read_resource(str(uri)), "contents")]


async def load_mcp_prompt(
    session: ServerSession, name: str, *, arguments: Mapping[str, Any] | None = None
) -> list[HumanMessage | AIMessage]:
    """Gets the messages of a prompt."""
    return [_message(message) for message in _items(await session.get_prompt(name, arguments), "messages")]


_SEPARATOR = "_"
"""Between server and tool in a name with a prefix, as in `langchain-mcp-adapters`."""


def _wrapping(callbacks: Callbacks | None, interceptors: Sequence[ToolCallInterceptor] | None) -> CallWrapping | None:
    if callbacks is None and not interceptors:
        return None
    return CallWrapping(tuple(interceptors or ()), callbacks or Callbacks())


class MultiServerMCPClient:
    """Replaces the client of `langchain-mcp-adapters`, with the same connections.

    A call belongs to the session of the `thread_id` in its config, else to the session of the task, see
    `stayput.Hub.run`, else to the client's own session. So a program with several users must give each conversation
    its `thread_id`.

    >>> async def main():
    ...     server = {"transport": "stdio", "command": "stayput", "args": ["demo-server"]}
    ...     async with MultiServerMCPClient({"notes": server}) as client:
    ...         tools = {tool.name: tool for tool in await client.get_tools()}
    ...         await tools["note_add"].ainvoke({"text": "buy milk"})
    ...         return await tools["note_list"].ainvoke({})
    >>> asyncio.run(main())
    [{'type': 'text', 'text': '1. buy milk'}]
    """

    def __init__(
        self,
        connections: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        callbacks: Callbacks | None = None,
        tool_interceptors: Sequence[ToolCallInterceptor] | None = None,
        tool_name_prefix: bool = False,
        handle_tool_errors: bool = True,
        key: Key = "thread_id",
        **settings: Any,
    ) -> None:
        """`key` selects the session name from the config; `settings` are those of `stayput.Hub.from_config`."""
        self.callbacks = callbacks
        self.tool_interceptors = list(tool_interceptors or ())
        self.connections: dict[str, Mapping[str, Any]] = dict(connections or {})
        self.tool_name_prefix = tool_name_prefix
        self.handle_tool_errors = handle_tool_errors
        self._key = key
        self._settings = settings
        self._built: tuple[Hub, Session] | None = None
        self._building = threading.Lock()

    @property
    def hub(self) -> Hub:
        """Hub of the client, built at the first use, so that a forked child has its own if the parent did not use it."""
        return self._ensure_hub()[0]

    def _ensure_hub(self) -> tuple[Hub, Session]:
        with self._building:
            if self._built is None:
                hub = Hub.from_config(to_config(self.connections), **self._hub_settings())
                self._built = hub, hub.session()
            return self._built

    def _hub_settings(self) -> dict[str, Any]:
        settings = dict(self._settings)
        headers = auth_headers(self.connections)
        if headers is not None:
            if settings.get("headers") is not None:
                raise InvalidInputError("a connection has `auth`, and the client has `headers`: use one of them")
            settings["headers"] = headers
        elicitation = None if self.callbacks is None else elicitation_handler(self.callbacks)
        if elicitation is not None:
            settings["handlers"] = {**(settings.get("handlers") or {}), "elicitation": elicitation}
        return settings

    async def get_tools(self, *, server_name: str | None = None) -> list[BaseTool]:
        """Lists the tools of one server or of all."""
        if server_name is not None:
            self._check_server(server_name)
        if not self.connections:
            return []
        hub, fallback = self._ensure_hub()
        listed = await hub.tools(server_name)
        resolver = SessionResolver(hub, self._key, fallback)
        wrapping = _wrapping(self.callbacks, self.tool_interceptors)
        prefix, errors = self.tool_name_prefix, self.handle_tool_errors
        return build_tools(
            resolver, listed, prefix=prefix, handle_errors=errors, separator=_SEPARATOR, wrapping=wrapping
        )

    @asynccontextmanager
    async def session(self, server_name: str, *, auto_initialize: bool = True) -> AsyncGenerator[ServerSession, None]:
        """Opens a new session on a server, which ends with the block."""
        self._check_server(server_name)
        async with self.hub.session() as session:
            opened = ServerSession(session, server_name)
            if auto_initialize:
                await opened.initialize()
            yield opened

    async def get_prompt(
        self, server_name: str, prompt_name: str, *, arguments: Mapping[str, Any] | None = None
    ) -> list[HumanMessage | AIMessage]:
        """Gets the messages of a prompt."""
        self._check_server(server_name)
        got = await self._calls().prompt(server_name, prompt_name, arguments)
        return [_message(message) for message in _items(got, "messages")]

    async def get_resources(
        self, server_name: str | None = None, *, uris: str | Sequence[str] | None = None
    ) -> list[Blob]:
        """Reads resources of one server or of all: those with these URIs, or all."""
        if server_name is not None:
            self._check_server(server_name)
        wanted = [uris] if isinstance(uris, str) else uris
        calls, found = self._calls(), list[Blob]()
        for server in self.hub.server_names if server_name is None else [server_name]:
            listed = wanted if wanted is not None else [it.uri for it in await calls.resources(server)]
            for uri in listed:
                found += [_blob(content) for content in _items(await calls.read(server, str(uri)), "contents")]
        return found

    def _calls(self) -> Hub | Session:
        hub, fallback = self._ensure_hub()
        return fallback if hub.current is None else hub

    def _check_server(self, server: str) -> None:
        if server not in self.connections:
            raise InvalidInputError(f"there is no server `{server}`; there are: {', '.join(self.connections) or 'none'}")

    async def aclose(self) -> None:
        """Closes the hub. Without this call it is closed with the client or with the interpreter."""
        if self._built is not None:
            await self._built[0].close()
            self._built = None

    async def __aenter__(self) -> MultiServerMCPClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def _items(result: ToolResult, what: str) -> list[dict[str, Any]]:
    return result.data.get(what) or []


def _message(message: Mapping[str, Any]) -> HumanMessage | AIMessage:
    piece: Mapping[str, Any] = message.get("content") or {}
    content: Any = piece.get("text", "") if piece.get("type") == "text" else [content_block(piece)]
    return AIMessage(content=content) if message.get("role") == "assistant" else HumanMessage(content=content)


def _blob(content: Mapping[str, Any]) -> Blob:
    data = base64.b64decode(content["blob"]) if "blob" in content else str(content.get("text", ""))
    return Blob.from_data(data, mime_type=content.get("mimeType"), metadata={"uri": content.get("uri")})
