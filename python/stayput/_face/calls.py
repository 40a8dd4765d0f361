"""What can be asked of servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from .. import _core
from .._aio import Listener, wait, wait_all
from .._hubs import arguments
from .._scope import around
from .._types import Handlers, Prompt, Resource, Tool, ToolResult

if TYPE_CHECKING:
    from typing_extensions import Self

Hears = Callable[[dict[str, Any]], object]


class Calls:
    """What can be asked of servers: on a session, or on a hub in the session of the task."""

    _hub: _core.Hub
    _handlers: Handlers
    _limit: float | None = None
    _again: bool = False
    _hears: Hears | None = None

    async def _session(self) -> _core.Session | None:
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        # A copy of what leads to a session leads to the same one.
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is of this process and cannot be pickled: build a hub in the other one, from the same configuration; "
            "a session can be taken along by its name with a `store`, or by `Session.ticket`"
        )

    def _answering(self) -> Handlers:
        return self._handlers

    def _listener(self) -> Listener | None:
        handlers = self._answering()
        if handlers or self._hears is not None:
            return Listener(handlers, self._hears)
        return None

    async def call(self, server: str, tool: str, given: Mapping[str, Any] | None = None, /, **named: Any) -> ToolResult:
        """Calls a tool, with arguments by name or in a mapping. The call is made once, never twice; cancelled, it is
        cancelled on the server, too.

        >>> async def main():
        ...     async with notebook() as hub, hub.run():
        ...         await hub.call("notes", "note_add", text="buy milk")
        ...         return (await hub.call("notes", "note_list", {})).text
        >>> asyncio.run(main())
        '1. buy milk'
        """
        session = await self._session()
        options = (self._limit, self._again, self._hears is not None)
        op = self._hub.call(around(), session, (server, tool, arguments(given, named)), options)
        raw, after_loss = await wait(op, self._listener())
        return ToolResult(raw, after_loss)

    async def tools(self, server: str | None = None) -> list[Tool]:
        """The tools of a server, or of all of them. No server is started to list what is known already.

        >>> async def main():
        ...     async with notebook() as hub:
        ...         return [tool.name for tool in await hub.tools("notes")]
        >>> "note_add" in asyncio.run(main())
        True
        """
        session = await self._session()
        servers = self._hub.server_names() if server is None else [server]
        lists = await wait_all([self._hub.list(around(), session, name, "tools") for name in servers])
        return [Tool.of(name, raw) for name, raws in zip(servers, lists) for raw in raws]

    async def prompts(self, server: str) -> list[Prompt]:
        """The prompts of a server."""
        raws = await wait(self._hub.list(around(), await self._session(), server, "prompts"))
        return [Prompt.of(server, raw) for raw in raws]

    async def resources(self, server: str) -> list[Resource]:
        """The resources of a server."""
        raws = await wait(self._hub.list(around(), await self._session(), server, "resources"))
        return [Resource.of(server, raw) for raw in raws]

    async def resource_templates(self, server: str) -> list[Resource]:
        """The resource templates of a server."""
        raws = await wait(self._hub.list(around(), await self._session(), server, "templates"))
        return [Resource.of(server, raw) for raw in raws]

    async def prompt(
        self, server: str, name: str, given: Mapping[str, Any] | None = None, /, **named: Any
    ) -> ToolResult:
        """Gets a prompt; `data` of the result has the messages."""
        session = await self._session()
        op = self._hub.prompt(around(), session, (server, name), arguments(given, named))
        return ToolResult(await wait(op, self._listener()))

    async def read(self, server: str, uri: str) -> ToolResult:
        """Reads a resource; `data` of the result has the contents."""
        op = self._hub.read(around(), await self._session(), server, uri)
        return ToolResult(await wait(op, self._listener()))
