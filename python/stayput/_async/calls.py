"""Calls, lists, prompts and resources: the methods that hubs and sessions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from .. import _core
from .._aio import Listener, wait, wait_all
from .._build import encode_arguments, encode_meta
from .._headers import HubCallbacks
from .._scope import current_core
from .._types import UNCHANGED as UNCHANGED, Handlers, Prompt, Resource, Tool, ToolResult, Unchanged as Unchanged

if TYPE_CHECKING:
    from typing_extensions import Self

NotificationHandler = Callable[[dict[str, Any]], object]


class CallMethods:
    """Methods that hubs and sessions share. On a hub they use the session of the current task."""

    _hub: _core.Hub
    _handlers: Handlers
    _headers: HubCallbacks
    _shares_sessions: bool = False
    _timeout: float | None = None
    _restart_on_loss: bool = False
    _on_notification: NotificationHandler | None = None
    _meta: Mapping[str, Any] | None = None

    def _take_options(
        self,
        source: CallMethods,
        timeout: float | None | Unchanged,
        restart_on_loss: bool | Unchanged,
        on_notification: NotificationHandler | None | Unchanged,
        meta: Mapping[str, Any] | None | Unchanged,
    ) -> None:
        self._copy_options(source)
        if not isinstance(timeout, Unchanged):
            self._timeout = timeout
        if not isinstance(restart_on_loss, Unchanged):
            self._restart_on_loss = restart_on_loss
        if not isinstance(on_notification, Unchanged):
            self._on_notification = on_notification
        if not isinstance(meta, Unchanged):
            self._meta = meta

    def _copy_options(self, source: Any) -> None:
        # `source` may be the same class without `await`.
        self._handlers = source._handlers
        self._timeout = source._timeout
        self._restart_on_loss = source._restart_on_loss
        self._on_notification = source._on_notification
        self._meta = source._meta

    async def _session(self) -> _core.Session | None:
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        # A copy is a handle of the same session.
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} belongs to this process and cannot be pickled: build a hub in the other process, from the same "
            "configuration; a session can move by its name with a `store`, or by `Session.ticket`"
        )

    def _active_handlers(self) -> Handlers:
        return self._handlers

    def _listener(self) -> Listener | None:
        handlers = self._active_handlers()
        if handlers or self._on_notification is not None:
            return Listener(handlers, self._on_notification)
        return None

    async def call(self, server: str, tool: str, given: Mapping[str, Any] | None = None, /, **named: Any) -> ToolResult:
        """Calls a tool, with arguments by name or in a mapping. The call is sent once, never twice. Cancellation also
        cancels it on the server.

        >>> async def main():
        ...     async with notebook() as hub, hub.run():
        ...         await hub.call("notes", "note_add", text="buy milk")
        ...         return (await hub.call("notes", "note_list", {})).text
        >>> asyncio.run(main())
        '1. buy milk'
        """
        session = await self._session()
        options = (self._timeout, self._restart_on_loss, self._on_notification is not None, encode_meta(self._meta))
        op = self._hub.call(current_core(), session, (server, tool, encode_arguments(given, named)), options)
        raw, after_loss = await wait(op, self._listener())
        return ToolResult(raw, after_loss)

    async def tools(self, server: str | None = None) -> list[Tool]:
        """Lists the tools of one server, or of all that the sub-agent may use. A server whose lists are known is not started.

        >>> async def main():
        ...     async with notebook() as hub:
        ...         return [tool.name for tool in await hub.tools("notes")]
        >>> "note_add" in asyncio.run(main())
        True
        """
        session = await self._session()
        servers = self._hub.allowed_servers(current_core()) if server is None else [server]
        lists = await wait_all([self._hub.list(current_core(), session, name, "tools") for name in servers])
        return [Tool.from_json(name, raw) for name, raws in zip(servers, lists) for raw in raws]

    async def prompts(self, server: str) -> list[Prompt]:
        """Lists the prompts of a server."""
        raws = await wait(self._hub.list(current_core(), await self._session(), server, "prompts"))
        return [Prompt.from_json(server, raw) for raw in raws]

    async def resources(self, server: str) -> list[Resource]:
        """Lists the resources of a server."""
        raws = await wait(self._hub.list(current_core(), await self._session(), server, "resources"))
        return [Resource.from_json(server, raw) for raw in raws]

    async def resource_templates(self, server: str) -> list[Resource]:
        """Lists the resource templates of a server."""
        raws = await wait(self._hub.list(current_core(), await self._session(), server, "templates"))
        return [Resource.from_json(server, raw) for raw in raws]

    async def prompt(
        self, server: str, name: str, given: Mapping[str, Any] | None = None, /, **named: Any
    ) -> ToolResult:
        """Gets a prompt; `data` of the result has the messages."""
        session = await self._session()
        op = self._hub.prompt(current_core(), session, (server, name), encode_arguments(given, named))
        return ToolResult(await wait(op, self._listener()))

    async def read(self, server: str, uri: str) -> ToolResult:
        """Reads a resource; `data` of the result has the contents."""
        op = self._hub.read(current_core(), await self._session(), server, uri)
        return ToolResult(await wait(op, self._listener()))

    async def complete(self, server: str, reference: Mapping[str, Any], argument: str, value: str) -> list[str]:
        """Completes the value of an argument of a prompt or of a resource template. `reference` is the `ref` of the
        protocol: `{"type": "ref/prompt", "name": …}` or `{"type": "ref/resource", "uri": …}`."""
        session, ref = await self._session(), encode_arguments(reference, {})
        op = self._hub.complete(current_core(), session, (server, ref), (argument, value))
        completion: dict[str, list[str]] = ToolResult(await wait(op, self._listener())).data.get("completion") or {}
        return completion.get("values") or []
