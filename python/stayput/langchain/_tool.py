"""A tool of a server, as LangChain has tools."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from .._errors import (
    AtCapacity,
    CallFailed,
    Denied,
    Refused,
    ServerFailed,
    StateLost,
    StayputError,
    Unanswered,
)
from .._types import Tool, ToolResult
from ._blocks import Artifact, Block, blocks
from ._place import Place

TOLD = (StateLost, Refused, CallFailed, ServerFailed, AtCapacity, Denied, Unanswered)
"""What a model can do something about: it is told. All else is a mistake of the program, and is raised."""


class ToolFailed(ToolException):
    """A tool says that it failed, or there is no result; of the latter, the cause is a `StayputError`."""

    def __init__(self, message: str, content: list[Block], result: ToolResult | None = None) -> None:
        super().__init__(message)
        self.content = content
        """What the model is told, as content blocks."""
        self.result = result
        """What the tool answered, if it did."""


class SessionTool(BaseTool):
    """A tool of a server, whose calls land in the session that they belong to. `as_tools` makes them."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    server: str
    """The server."""
    tool: str
    """What the server calls it."""
    _place: Place = PrivateAttr()

    @classmethod
    def of(cls, tool: Tool, name: str, place: Place, *, handle_errors: bool = True) -> SessionTool:
        """A tool under a name that models use."""
        made = cls(
            name=name,
            description=tool.description or tool.title or tool.name,
            args_schema=_schema(tool),
            metadata=_metadata(tool),
            handle_tool_error=_told if handle_errors else False,
            server=tool.server,
            tool=tool.name,
        )
        made._place = place
        return made

    # Arguments can have any name, those of the parameters here but one.
    def _run(self, /, *, stayput_config: RunnableConfig, **arguments: Any) -> tuple[list[Block], Artifact]:
        with self._place.around(), _failing():
            result = self._place.blocking(stayput_config).call(self.server, self.tool, arguments)
        return self._answered(result)

    async def _arun(self, /, *, stayput_config: RunnableConfig, **arguments: Any) -> tuple[list[Block], Artifact]:
        with self._place.around(), _failing():
            result = await self._place.waiting(stayput_config).call(self.server, self.tool, arguments)
        return self._answered(result)

    def _answered(self, result: ToolResult) -> tuple[list[Block], Artifact]:
        content = blocks(result)
        if result.after_loss:
            content.insert(0, {"type": "text", "text": _AFTER_LOSS.format(self.server)})
        if result.is_error:
            raise ToolFailed(result.text or f"the tool `{self.tool}` failed without a word", content, result)
        return content, Artifact(
            structured_content=result.structured,
            raw=result.data,
            server=self.server,
            tool=self.tool,
            after_loss=result.after_loss,
        )


_AFTER_LOSS = "The state of `{}` was lost before this call, which ran on a fresh one. What it had before is gone."


@contextmanager
def _failing() -> Generator[None, None, None]:
    try:
        yield
    except TOLD as error:
        raise ToolFailed(str(error), [{"type": "text", "text": _sentence(error)}]) from error


def _sentence(error: StayputError) -> str:
    if error.may_have_run and not isinstance(error, StateLost):
        return f"{error}. It may have been carried out."
    return str(error)


def _told(error: ToolException) -> list[str | dict[str, Any]]:
    """What the model reads in place of a result."""
    if isinstance(error, ToolFailed):
        return list(error.content)
    return [{"type": "text", "text": str(error)}]


def _schema(tool: Tool) -> dict[str, Any]:
    """The schema as the server wrote it. LangChain wants to find `properties` there."""
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
