"""Interceptors of tool calls, and callbacks for what servers say during them, as `langchain-mcp-adapters` has them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

from .._errors import InvalidInputError
from .._types import ToolResult

_logger = logging.getLogger("stayput.callbacks")


@dataclass(frozen=True)
class MCPToolCallRequest:
    """Call of a tool, for interceptors."""

    name: str
    """Name of the tool on the server."""
    args: dict[str, Any]
    """Arguments."""
    server_name: str
    """The server."""
    headers: dict[str, Any] | None = None
    """Always `None`: the headers of a connection, or its `auth`, are asked for each request."""
    runtime: object | None = None
    """Config of the call."""

    def override(self, **changes: Any) -> MCPToolCallRequest:
        """Returns the call with another name or other arguments.

        >>> MCPToolCallRequest("add", {"a": 1}, "math").override(args={"a": 2}).args
        {'a': 2}
        """
        return dataclasses.replace(self, **changes)


CallHandler: TypeAlias = Callable[[MCPToolCallRequest], Awaitable[ToolResult]]
ToolCallInterceptor: TypeAlias = Callable[[MCPToolCallRequest, CallHandler], Awaitable[Any]]
"""Wraps tool calls: it can change the request, call the handler any number of times, and change the result. It may also return a
`ToolMessage` or a `Command` of its own."""


def intercepted(interceptors: tuple[ToolCallInterceptor, ...], handler: CallHandler) -> Callable[[MCPToolCallRequest], Awaitable[Any]]:
    """Returns the handler inside all interceptors, of which the first one is the outermost."""

    async def innermost(request: MCPToolCallRequest) -> ToolResult:
        if request.headers:
            raise InvalidInputError("an interceptor cannot set headers: give the connection `headers` or `auth`")
        return await handler(request)

    call: Callable[[MCPToolCallRequest], Awaitable[Any]] = innermost
    for interceptor in reversed(interceptors):
        call = _wrap(interceptor, call)
    return call


def _wrap(interceptor: ToolCallInterceptor, inner: CallHandler) -> Callable[[MCPToolCallRequest], Awaitable[Any]]:
    async def call(request: MCPToolCallRequest) -> Any:
        return await interceptor(request, inner)

    return call


@dataclass(frozen=True)
class CallbackContext:
    """Call during which a server says something."""

    server_name: str
    """The server."""
    tool_name: str | None = None
    """The tool. `None` for a question of the server."""


@dataclass(frozen=True)
class Callbacks:
    """Callbacks for what servers say during calls. Each is an `async` function."""

    on_logging_message: Callable[[Any, CallbackContext], Coroutine[Any, Any, None]] | None = None
    """Gets the parameters of a log message."""
    on_progress: Callable[[float, float | None, str | None, CallbackContext], Coroutine[Any, Any, None]] | None = None
    """Gets progress, total and message."""
    on_elicitation: Callable[[None, Any, CallbackContext], Coroutine[Any, Any, Any]] | None = None
    """Answers a question of the server: gets `None`, the parameters and the context, and returns an `ElicitResult` or a dict."""


class CallListener:
    """Passes the notifications of one call to callbacks. They have run when the call returns."""

    def __init__(self, callbacks: Callbacks, context: CallbackContext) -> None:
        self._callbacks = callbacks
        self._context = context
        self._running = list[asyncio.Task[None]]()

    def on_notification(self, notification: dict[str, Any]) -> None:
        """Starts the callback of a notification."""
        params: dict[str, Any] = notification.get("params") or {}
        logged, progressed = self._callbacks.on_logging_message, self._callbacks.on_progress
        if notification.get("method") == "notifications/message" and logged is not None:
            self._running.append(asyncio.ensure_future(logged(typed("LoggingMessageNotificationParams", params), self._context)))
        elif notification.get("method") == "notifications/progress" and progressed is not None:
            work = progressed(params.get("progress", 0), params.get("total"), params.get("message"), self._context)
            self._running.append(asyncio.ensure_future(work))

    async def finish(self) -> None:
        """Waits for the callbacks. One that fails is logged, because the result of the call stays what it is."""
        for outcome in await asyncio.gather(*self._running, return_exceptions=True):
            if isinstance(outcome, BaseException):
                _logger.error("a callback of the tool `%s` failed", self._context.tool_name, exc_info=outcome)


def elicitation_handler(callbacks: Callbacks) -> Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]] | None:
    """Returns the handler for questions of servers, if there is a callback for them."""
    answer = callbacks.on_elicitation
    if answer is None:
        return None

    async def handle(params: dict[str, Any]) -> dict[str, Any]:
        given: Any = await answer(None, typed("ElicitRequestParams", params), CallbackContext(""))
        dumped: dict[str, Any] = given.model_dump(mode="json", exclude_none=True) if hasattr(given, "model_dump") else given
        return dumped

    return handle


def typed(name: str, params: dict[str, Any]) -> Any:
    """Returns parameters as the type of the official SDK, if it is installed and has it, else with the same attributes."""
    try:
        from mcp import types  # type: ignore[import-not-found,unused-ignore]  # pyright: ignore
    except ImportError:
        return SimpleNamespace(**params)
    kind: Any = getattr(types, name, None)  # pyright: ignore[reportUnknownArgumentType]
    return kind.model_validate(params) if hasattr(kind, "model_validate") else SimpleNamespace(**params)
