"""LangChain tool that calls a tool of an MCP server."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from .._blocking import run_awaitable
from .._errors import (
    AtCapacityError,
    CallFailedError,
    AccessDeniedError,
    ProtocolError,
    ServerFailedError,
    StateLostError,
    StayputError,
    InputRequiredError,
)
from .._types import Tool, ToolResult
from ._blocks import Artifact, Block, content_blocks
from ._interceptors import CallbackContext, Callbacks, CallListener, MCPToolCallRequest, ToolCallInterceptor, intercepted
from ._resolver import SessionResolver

MODEL_ERRORS = (StateLostError, ProtocolError, CallFailedError, ServerFailedError, AtCapacityError, AccessDeniedError, InputRequiredError)
"""Errors that the model can react to: it gets them as a message. All others are mistakes of the program, and are raised."""


class ToolFailedError(ToolException):
    """The tool reported a failure, or the call failed; the cause of a failed call is a `StayputError`."""

    def __init__(self, message: str, content: list[Block], result: ToolResult | None = None) -> None:
        super().__init__(message)
        self.content = content
        """Content blocks for the model."""
        self.result = result
        """Result of the tool, if there is one."""


@dataclass(frozen=True)
class CallWrapping:
    """Interceptors and callbacks around the calls of tools."""

    interceptors: tuple[ToolCallInterceptor, ...] = ()
    callbacks: Callbacks = Callbacks()


class SessionTool(BaseTool):
    """Tool of a server. Each call runs in the session that it belongs to. `as_tools` creates them."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    server: str
    """The server."""
    tool: str
    """Name of the tool on the server."""
    _resolver: SessionResolver = PrivateAttr()
    _wrapping: CallWrapping | None = PrivateAttr(default=None)

    @classmethod
    def from_tool(
        cls,
        tool: Tool,
        name: str,
        resolver: SessionResolver,
        *,
        handle_errors: bool = True,
        wrapping: CallWrapping | None = None,
    ) -> SessionTool:
        """Creates a tool under a name for the model."""
        made = cls(
            name=name,
            description=tool.description or tool.title or tool.name,
            args_schema=_schema(tool),
            metadata=_metadata(tool),
            handle_tool_error=_error_content if handle_errors else False,
            server=tool.server,
            tool=tool.name,
        )
        made._resolver = resolver
        made._wrapping = wrapping
        return made

    # Arguments can have any name except `stayput_config`.
    def _run(self, /, *, stayput_config: RunnableConfig, **arguments: Any) -> tuple[Any, Artifact | None]:
        if self._wrapping is not None:
            # Interceptors and callbacks are coroutines.
            return run_awaitable(self._call_wrapped(self._wrapping, stayput_config, arguments))
        with self._resolver.scope(), _raise_tool_failed():
            result = self._resolver.sync_target(stayput_config).call(self.server, self.tool, arguments)
        return self._convert(result)

    async def _arun(self, /, *, stayput_config: RunnableConfig, **arguments: Any) -> tuple[Any, Artifact | None]:
        if self._wrapping is not None:
            return await self._call_wrapped(self._wrapping, stayput_config, arguments)
        with self._resolver.scope(), _raise_tool_failed():
            result = await self._resolver.async_target(stayput_config).call(self.server, self.tool, arguments)
        return self._convert(result)

    async def _call_wrapped(
        self, wrapping: CallWrapping, config: RunnableConfig, arguments: dict[str, Any]
    ) -> tuple[Any, Artifact | None]:
        async def call(request: MCPToolCallRequest) -> ToolResult:
            listener = CallListener(wrapping.callbacks, CallbackContext(self.server, request.name))
            target = self._resolver.async_target(config)
            if wrapping.callbacks.on_progress or wrapping.callbacks.on_logging_message:
                target = target.with_options(on_notification=listener.on_notification)
            try:
                return await target.call(self.server, request.name, request.args)
            finally:
                await listener.finish()

        with self._resolver.scope(), _raise_tool_failed():
            request = MCPToolCallRequest(self.tool, arguments, self.server, runtime=config)
            result = await intercepted(wrapping.interceptors, call)(request)
        # A message or command of an interceptor is the answer.
        return self._convert(result) if isinstance(result, ToolResult) else (result, None)

    def _convert(self, result: ToolResult) -> tuple[list[Block], Artifact]:
        content = content_blocks(result)
        if result.after_loss:
            content.insert(0, {"type": "text", "text": _AFTER_LOSS.format(self.server)})
        if result.is_error:
            raise ToolFailedError(result.text or f"the tool `{self.tool}` failed without a message", content, result)
        return content, Artifact(
            structured_content=result.structured,
            raw=result.data,
            server=self.server,
            tool=self.tool,
            after_loss=result.after_loss,
        )


_AFTER_LOSS = "The state of `{}` was lost before this call. The call ran on a fresh state."


@contextmanager
def _raise_tool_failed() -> Generator[None, None, None]:
    try:
        yield
    except MODEL_ERRORS as error:
        raise ToolFailedError(str(error), [{"type": "text", "text": _message(error)}]) from error


def _message(error: StayputError) -> str:
    if error.may_have_run and not isinstance(error, StateLostError):
        return f"{error}. It may have been carried out."
    return str(error)


def _error_content(error: ToolException) -> list[str | dict[str, Any]]:
    """Returns the content for the model in place of a result."""
    if isinstance(error, ToolFailedError):
        return list(error.content)
    return [{"type": "text", "text": str(error)}]


def _schema(tool: Tool) -> dict[str, Any]:
    """Returns the server's schema, with the `properties` that LangChain requires."""
    schema = dict(tool.input_schema)
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    return schema


def _metadata(tool: Tool) -> dict[str, Any]:
    found = {
        "tool_type": "mcp",
        "display_name": tool.title or tool.annotations.get("title") or tool.name,
        "server": tool.server,
        "tool": tool.name,
        "annotations": tool.annotations,
        "_meta": tool.raw.get("_meta"),
    }
    return {name: value for name, value in found.items() if value}
